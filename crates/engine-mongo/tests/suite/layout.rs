//! The layout as other programs see it.

use std::collections::BTreeSet;

use libtest_mimic::Trial;
use mongodb::bson::{DateTime, Document, doc};
use prombus_engine::Engine;
use prombus_engine_mongo::{MongoEngine, MongoError};
use prombus_proto::{Key, Seq, Timestamp};

use crate::database::{
    Database, NOW, append, event, key, of_events, of_state, put, topic, trial, until,
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("layout::the_indexes_are_those_documented", indexes),
        trial("layout::an_event_is_readable", an_event),
        trial("layout::a_cursor_is_readable_by_topic_and_group", a_cursor),
        trial("layout::a_mark_is_readable_and_expires_by_its_index", a_mark),
        trial("layout::marks_of_other_programs_are_honoured", marks_of_others),
        trial("layout::a_scan_merges_the_collections_in_key_order", scanned_in_one_order),
        trial("layout::a_newer_layout_is_rejected", newer_layout),
    ]
}

async fn indexes() {
    let database = Database::new().await;
    database.engine().await;
    // Opening again finds all of them.
    database.engine().await;
    for (collection, due) in [
        (
            "events",
            &["topic,seq unique", "topic,id unique", "topic,ts,id", "topic,key,ts", "expireAt ttl"]
                [..],
        ),
        ("dedupe", &["expireAt ttl"]),
        ("outbox", &["status,lease_until", "ts"]),
        ("cursors", &["key"]),
    ] {
        let mut found = BTreeSet::new();
        let mut listed = database.collection(collection).list_indexes().await.unwrap();
        while listed.advance().await.unwrap() {
            let index = listed.deserialize_current().unwrap();
            let members: Vec<&str> = index.keys.keys().map(String::as_str).collect();
            let options = index.options.unwrap_or_default();
            let unique = if options.unique == Some(true) { " unique" } else { "" };
            let ttl = if options.expire_after.is_some() { " ttl" } else { "" };
            found.insert(format!("{}{unique}{ttl}", members.join(",")));
        }
        let due = due.iter().map(|index| (*index).to_owned()).chain(["_id".to_owned()]);
        assert_eq!(found, due.collect::<BTreeSet<_>>(), "{collection}");
    }
}

async fn an_event() {
    let database = Database::new().await;
    let engine = database.engine().await;
    let mut published = event("orders", "o-1");
    published.key = Some(Key::new("customer-7").unwrap());
    engine.commit(of_events(&[published.clone()])).await.unwrap();
    let stored = database.collection("events").find_one(doc! {}).await.unwrap().unwrap();
    assert_eq!(stored.get_str("topic").unwrap(), "orders");
    assert_eq!(stored.get_str("id").unwrap(), "o-1");
    assert_eq!(stored.get_str("key").unwrap(), "customer-7");
    assert_eq!(stored.get_i64("seq").unwrap(), 1);
    assert_eq!(stored.get_i64("ts").unwrap(), 4_000_000_000_000);
    let mut json = Vec::new();
    published.encode().write_json(Seq(1), &mut json);
    assert_eq!(stored.get_str("json").unwrap().as_bytes(), json);
}

async fn one(database: &Database, collection: &str, id: &str) -> Option<Document> {
    database.collection(collection).find_one(doc! { "_id": id }).await.unwrap()
}

async fn a_cursor() {
    let database = Database::new().await;
    let engine = database.engine().await;
    let value = r#"{"v":1,"floor":41,"last_id":"o-41","last_ts":1700000000000,"created":1}"#;
    engine.commit(of_state(vec![put("cursor/orders::billing/0", value, None)])).await.unwrap();
    let cursor = one(&database, "cursors", "orders::billing").await.unwrap();
    assert_eq!(cursor.get_str("lastId").unwrap(), "o-41");
    assert_eq!(cursor.get_i64("lastTs").unwrap(), 1_700_000_000_000);
    let entry = engine.get(&key("cursor/orders::billing/0")).await.unwrap().unwrap();
    assert_eq!(entry.value, value);
}

async fn a_mark() {
    let database = Database::new().await;
    let engine = database.engine().await;
    let lasting = put("dedupe/orders::billing::é 1", "1", Some(NOW.plus_ms(1000)));
    // Already expired, by the servers' clock and by the test's.
    let expired = put("dedupe/orders::billing::2", "1", Some(Timestamp(1_600_000_000_000)));
    engine.commit(of_state(vec![lasting, expired])).await.unwrap();
    let mark = one(&database, "dedupe", "orders::billing::é 1").await.unwrap();
    assert_eq!(mark.get_datetime("expireAt").unwrap().timestamp_millis(), 4_000_000_001_000);
    assert_eq!(engine.get(&key("dedupe/orders::billing::2")).await.unwrap(), None);
    until(|| async { one(&database, "dedupe", "orders::billing::2").await.is_none() }).await;

    let lasting = key("dedupe/orders::billing::é 1");
    assert!(engine.get(&lasting).await.unwrap().is_some());
    // Readers no longer see it, although the servers have not removed it yet.
    database.clock.advance_ms(1000);
    assert_eq!(engine.get(&lasting).await.unwrap(), None);
    assert!(one(&database, "dedupe", "orders::billing::é 1").await.is_some());
}

async fn marks_of_others() {
    let database = Database::new().await;
    let engine = database.engine().await;
    let end = DateTime::from_millis(4_000_000_001_000);
    let theirs = doc! { "_id": "orders::billing::x", "expireAt": end };
    database.collection("dedupe").insert_one(theirs).await.unwrap();
    let mark = key("dedupe/orders::billing::x");
    until(|| async { engine.get(&mark).await.unwrap().is_some() }).await;
    let entry = engine.get(&mark).await.unwrap().unwrap();
    assert_eq!((&entry.value[..], entry.expires_at), (&b"1"[..], Some(NOW.plus_ms(1000))));
}

async fn scanned_in_one_order() {
    let database = Database::new().await;
    let engine = database.engine().await;
    // In byte order. What follows the group's name orders the first two cursors.
    let names = [
        "a",
        "cursor/",
        "cursor/t::g-x/0",
        "cursor/t::g/0",
        "cursor/t::g/1",
        "d",
        "dedupe/",
        "dedupe/t::g::1",
        "dedupe/t::g::é",
        "dedupf",
    ];
    let puts = names.iter().rev().map(|name| put(name, "{}", None)).collect();
    engine.commit(of_state(puts)).await.unwrap();
    for prefix in ["", "c", "cursor/", "cursor/t::g", "d", "dedupe/", "dedupe/t::", "x"] {
        let due: Vec<&str> = names.into_iter().filter(|name| name.starts_with(prefix)).collect();
        for limit in [1, 2, 3, 100] {
            let mut found: Vec<String> = Vec::new();
            loop {
                let after = found.last().map(|name| key(name));
                let page = engine.scan(prefix.as_bytes(), after.as_ref(), limit).await.unwrap();
                let names =
                    page.iter().map(|e| String::from_utf8_lossy(e.key.as_bytes()).into_owned());
                found.extend(names);
                if page.len() < limit {
                    break;
                }
            }
            assert_eq!(found, due, "{prefix:?} by {limit}");
        }
    }
    // A prefix that ends in the middle of a character.
    let found = engine.scan(b"dedupe/t::g::\xc3", None, 9).await.unwrap();
    assert_eq!(found.len(), 1);
}

async fn newer_layout() {
    let database = Database::new().await;
    let engine = database.engine().await;
    append(&engine, "a", &["1"]).await;
    let newer = doc! { "$set": { "version": 99_i64 } };
    database.collection("engine").update_one(doc! { "_id": "layout" }, newer).await.unwrap();
    let Err(error) = MongoEngine::open(&database.options).await else { panic!("it opened") };
    assert_eq!(error, MongoError::NewerLayout { found: 99, supported: 2 });
    assert_eq!(engine.bounds(&topic("a")).await.unwrap().last(), Seq(1));
}
