//! Migrations: planned, applied in full or in parts, until nothing is left to do.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use libtest_mimic::Trial;
use mongodb::IndexModel;
use mongodb::bson::{DateTime, Document, doc};
use mongodb::options::IndexOptions;
use prombus_engine::{Engine, ReadBudget};
use prombus_engine_mongo::{Migration, MongoEngine, MongoError, Progress};
use prombus_proto::{Event, Payload, Seq, Timestamp, Topic};
use prombus_test_mongod::{Kind, shared};

use crate::database::{Database, NOW, append, event, of_events, topic, trial};
use crate::expiring::at;
use crate::fixture;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("migrating::a_new_database_is_planned_and_created", new_database),
        trial("migrating::a_database_created_by_an_engine_needs_no_migration", made_by_an_engine),
        trial("migrating::layout_1_is_rejected_migrated_and_read", layout_1),
        trial("migrating::a_ttl_is_set_changed_and_removed", set_changed_removed),
        trial("migrating::parts_of_large_events_get_their_expiry", large_events),
        trial("migrating::an_interrupted_change_is_resumed", stopped),
        trial("migrating::an_interrupted_change_can_be_undone", taken_back),
        trial("migrating::events_always_expire_in_order", in_order),
        trial("migrating::publishing_continues_meanwhile", publishing_goes_on),
        trial("migrating::a_wrong_index_is_reported_and_rebuilt", wrong_index),
        trial("migrating::duplicates_are_reported_and_nothing_is_changed", duplicates),
        trial("migrating::an_engine_rejects_wrong_unique_indexes", refused_at_open),
        trial("migrating::only_one_migration_runs_at_a_time", only_one),
        trial("migrating::a_standalone_server_is_migrated", standalone),
    ]
}

const EVERYTHING: ReadBudget = ReadBudget { events: usize::MAX, bytes: usize::MAX };
const YEAR_MS: u64 = 365 * 86_400_000;

type Wanted = BTreeMap<Topic, u64>;

fn nothing() -> Wanted {
    BTreeMap::new()
}

fn ttl(name: &str, ms: u64) -> Wanted {
    BTreeMap::from([(topic(name), ms)])
}

async fn migration(database: &Database) -> Migration {
    Migration::connect(&database.options).await.unwrap()
}

async fn steps(database: &Database, wanted: &Wanted) -> Vec<String> {
    let plan = migration(database).await.plan(wanted).await.unwrap();
    plan.steps().iter().map(ToString::to_string).collect()
}

fn go_on(_: &Progress<'_>) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

async fn apply(database: &Database, wanted: &Wanted) -> Result<(), MongoError> {
    let migration = migration(database).await;
    let plan = migration.plan(wanted).await.unwrap();
    migration.apply(&plan, &go_on).await
}

/// Stops after this many progress reports.
async fn apply_until_reported(database: &Database, wanted: &Wanted, times: u64) -> MongoError {
    let migration = migration(database).await;
    let plan = migration.plan(wanted).await.unwrap();
    let reports = AtomicU64::new(0);
    let stop = |_: &Progress<'_>| match reports.fetch_add(1, Ordering::SeqCst) + 1 >= times {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    migration.apply(&plan, &stop).await.unwrap_err()
}

async fn add(engine: &MongoEngine, name: &str, count: u64) {
    let next = engine.bounds(&topic(name)).await.unwrap().next.0;
    let numbers: Vec<u64> = (next..next + count).collect();
    for some in numbers.chunks(1000) {
        let events: Vec<Event> =
            some.iter().map(|n| at(name, &n.to_string(), NOW.plus_ms(n / 3))).collect();
        engine.commit(of_events(&events)).await.unwrap();
    }
}

/// Returns when events expire, in milliseconds after they were stored, ordered by `seq`. For those of an
/// older program that is unknown, and `latestTs` counts.
async fn ends(database: &Database, name: &str) -> Vec<Option<i64>> {
    let events = database.collection("events");
    let mut found =
        events.find(doc! { "topic": name }).sort(doc! { "topic": 1, "seq": 1 }).await.unwrap();
    let mut ends = Vec::new();
    while found.advance().await.unwrap() {
        let event = found.deserialize_current().unwrap();
        let start = event.get_i64("storedAt").or_else(|_| event.get_i64("latestTs")).unwrap();
        let end = event.get_datetime("expireAt").ok();
        ends.push(end.map(|end| end.timestamp_millis() - start));
    }
    ends
}

async fn topic_document(database: &Database, name: &str) -> Document {
    database.collection("topics").find_one(doc! { "_id": name }).await.unwrap().unwrap()
}

async fn new_database() {
    let database = Database::new().await;
    let wanted = ttl("later", 1000);
    let planned = steps(&database, &wanted).await;
    assert!(planned.contains(&"create the collection topics".to_owned()), "{planned:?}");
    let by_place = "build the index events (topic, seq) unique, over 0 documents".to_owned();
    assert!(planned.contains(&by_place), "{planned:?}");
    assert!(planned.contains(&"record layout 2".to_owned()), "{planned:?}");
    assert_eq!(planned.last().unwrap(), "keep the events of later for 1000 ms");
    // Planning changes nothing.
    assert!(database.bare.list_collection_names().await.unwrap().is_empty());
    apply(&database, &wanted).await.unwrap();
    assert!(steps(&database, &wanted).await.is_empty());
    apply(&database, &wanted).await.unwrap();
    let engine = database.engine().await;
    append(&engine, "later", &["1"]).await;
    assert_eq!(ends(&database, "later").await, [Some(1000)]);
    assert!(steps(&database, &wanted).await.is_empty());
}

async fn made_by_an_engine() {
    let database = Database::new().await;
    let engine = database.engine().await;
    assert!(steps(&database, &nothing()).await.is_empty());
    append(&engine, "a", &["1"]).await;
    assert!(steps(&database, &nothing()).await.is_empty());
    let json = migration(&database).await.plan(&ttl("a", 5)).await.unwrap().to_json();
    assert_eq!(json["layout"], 2);
    assert_eq!(json["steps"][0]["step"], "change_ttl");
    assert_eq!(json["steps"][0]["topic"], "a");
    assert_eq!(json["steps"][0]["from_ms"], serde_json::Value::Null);
    assert_eq!(json["steps"][0]["to_ms"], 5);
    assert_eq!(json["steps"][0]["events"], 1);
}

async fn layout_1() {
    let database = Database::new().await;
    fixture::restore(&database.bare, "layout-1").await;
    let Err(refused) = MongoEngine::open(&database.options).await else { panic!("it opened") };
    assert_eq!(refused, MongoError::OlderLayout { found: 1, needed: 2 });
    assert!(refused.to_string().contains("prombus migrate --apply"), "{refused}");
    let wanted = ttl(fixture::LONG, 100 * YEAR_MS);
    let planned = steps(&database, &wanted).await;
    for due in [
        "build the index events (expireAt) sparse TTL 0 s, over 110 documents",
        "build the index event_parts (expireAt) sparse TTL 0 s, over 0 documents",
        "record layout 2 in place of 1; older versions of prombus can no longer use the database",
        "keep the events of fixture.long for 3153600000000 ms, including the 50 existing ones",
    ] {
        assert!(planned.contains(&due.to_owned()), "{due} is not in {planned:?}");
    }
    assert_eq!(planned.len(), 4, "{planned:?}");
    apply(&database, &wanted).await.unwrap();
    assert!(steps(&database, &wanted).await.is_empty());

    let engine = database.engine().await;
    for (name, first) in [(fixture::LONG, fixture::FIRST_OF_LONG), (fixture::FOREVER, Seq(1))] {
        let bounds = engine.bounds(&topic(name)).await.unwrap();
        assert_eq!((bounds.first, bounds.last()), (first, Seq(fixture::EVENTS)));
        let page = engine.read(&topic(name), Seq::ZERO, EVERYTHING).await.unwrap();
        assert_eq!(page.events.len() as u64, fixture::EVENTS + 1 - first.0);
        for stored in &page.events {
            let published = fixture::event(name, stored.seq.0);
            let mut json = Vec::new();
            published.encode().write_json(stored.seq, &mut json);
            assert_eq!(stored.json, json);
            let found = engine.seek_id(&topic(name), &published.id).await.unwrap();
            assert_eq!(found, Some(stored.seq));
        }
        let bytes: usize = page.events.iter().map(|event| event.json.len()).sum();
        assert_eq!(bounds.bytes, bytes as u64);
        // The fixture's timestamps are not in order; the first match still is the first.
        let ts = Timestamp(1_700_000_000_900);
        let due = page.events.iter().find(|event| event.ts >= ts).unwrap().seq;
        assert_eq!(engine.seek_time(&topic(name), ts).await.unwrap(), due);
    }
    assert_eq!(ends(&database, fixture::LONG).await, [Some(3_153_600_000_000); 50]);
    assert_eq!(ends(&database, fixture::FOREVER).await, [None; 60]);
    assert_eq!(engine.scan(b"", None, 100).await.unwrap().len(), 9);
    let again = fixture::event(fixture::LONG, 20);
    let committed = engine.commit(of_events(&[again])).await.unwrap();
    assert!(committed.positions[0].duplicate);
    assert_eq!(append(&engine, fixture::LONG, &["new"]).await, [fixture::EVENTS + 1]);
}

async fn set_changed_removed() {
    let database = Database::new().await;
    let engine = database.engine().await;
    add(&engine, "a", 2500).await;
    append(&engine, "other", &["1"]).await;
    for wanted in [Some(YEAR_MS), Some(1000), Some(5000), None, Some(7)] {
        let all = wanted.map_or_else(nothing, |ms| ttl("a", ms));
        assert_eq!(steps(&database, &all).await.len(), 1);
        apply(&database, &all).await.unwrap();
        assert!(steps(&database, &all).await.is_empty());
        add(&engine, "a", 1).await;
        let due = wanted.map(|ms| ms as i64);
        let ends = ends(&database, "a").await;
        assert!(ends.iter().all(|end| *end == due), "{wanted:?}: {ends:?}");
        let known = topic_document(&database, "a").await;
        assert_eq!(known.get_i64("ttlMs").ok(), due);
        assert!(!known.contains_key("ttlChange"));
    }
    assert_eq!(ends(&database, "other").await, [None]);
    // Out of the range of dates.
    apply(&database, &ttl("a", u64::MAX)).await.unwrap();
    assert!(ends(&database, "a").await.iter().all(Option::is_none));
    assert!(steps(&database, &ttl("a", u64::MAX)).await.is_empty());
}

async fn large_events() {
    let database = Database::new().await;
    let engine = database.engine().await;
    let text = format!("\"{}\"", "x".repeat(9 << 20));
    let large = Event { payload: Payload::parse(text.into()).unwrap(), ..event("a", "1") };
    engine.commit(of_events(&[large])).await.unwrap();
    let end_of_parts = || async {
        let parts = database.collection("event_parts");
        let mut found = parts.find(doc! {}).await.unwrap();
        let mut ends = Vec::new();
        while found.advance().await.unwrap() {
            let part = found.deserialize_current().unwrap();
            ends.push(part.get_datetime("expireAt").ok().copied());
        }
        ends
    };
    apply(&database, &ttl("a", 1000)).await.unwrap();
    let due = DateTime::from_millis(4_000_000_001_000);
    assert_eq!(end_of_parts().await, [Some(due); 2]);
    apply(&database, &nothing()).await.unwrap();
    assert_eq!(end_of_parts().await, [None; 2]);
}

async fn stopped() {
    let database = Database::new().await;
    let engine = database.engine().await;
    add(&engine, "a", 4500).await;
    for wanted in [ttl("a", 1000), ttl("a", 9000), nothing()] {
        // The step starts, and then changes a part of the events at a time.
        let stopped = apply_until_reported(&database, &wanted, 4).await;
        assert_eq!(stopped, MongoError::Stopped);
        assert!(topic_document(&database, "a").await.contains_key("ttlChange"));
        let planned = steps(&database, &wanted).await;
        assert_eq!(planned.len(), 1);
        assert!(planned[0].starts_with("resume: keep the events of a "), "{planned:?}");
        apply(&database, &wanted).await.unwrap();
        assert!(steps(&database, &wanted).await.is_empty());
        let due = wanted.get(&topic("a")).map(|ms| *ms as i64);
        assert!(ends(&database, "a").await.iter().all(|end| *end == due));
    }
}

async fn taken_back() {
    let database = Database::new().await;
    let engine = database.engine().await;
    add(&engine, "a", 4500).await;
    apply(&database, &ttl("a", YEAR_MS)).await.unwrap();
    apply_until_reported(&database, &ttl("a", 1000), 4).await;
    let half = ends(&database, "a").await;
    assert!(half.contains(&Some(1000)) && half.contains(&Some(YEAR_MS as i64)));
    // Undo it.
    apply(&database, &ttl("a", YEAR_MS)).await.unwrap();
    assert!(ends(&database, "a").await.iter().all(|end| *end == Some(YEAR_MS as i64)));
    assert!(steps(&database, &ttl("a", YEAR_MS)).await.is_empty());
}

/// Whenever the migration is interrupted, expiry dates rise with `seq`, even if events are
/// published meanwhile.
async fn in_order() {
    let database = Database::new().await;
    let engine = database.engine().await;
    add(&engine, "a", 3500).await;
    let changes = [Some(YEAR_MS), Some(1000), Some(60_000), Some(500), None];
    for wanted in changes {
        let all = wanted.map_or_else(nothing, |ms| ttl("a", ms));
        for times in 2..7 {
            let migration = migration(&database).await;
            let plan = migration.plan(&all).await.unwrap();
            let reports = AtomicU64::new(0);
            let stop = |_: &Progress<'_>| match reports.fetch_add(1, Ordering::SeqCst) + 1 >= times
            {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            };
            let _ = migration.apply(&plan, &stop).await;
            add(&engine, "a", 10).await;
            assert_in_order(&database, &format!("{wanted:?}, stopped at {times}")).await;
        }
        apply(&database, &all).await.unwrap();
        assert_in_order(&database, "done").await;
    }
}

async fn assert_in_order(database: &Database, when: &str) {
    let events = database.collection("events");
    let mut found =
        events.find(doc! { "topic": "a" }).sort(doc! { "topic": 1, "seq": 1 }).await.unwrap();
    let mut before = i64::MIN;
    while found.advance().await.unwrap() {
        let event = found.deserialize_current().unwrap();
        let end = event.get_datetime("expireAt").map_or(i64::MAX, |end| end.timestamp_millis());
        assert!(before <= end, "{when}: {event}");
        before = end;
    }
}

async fn publishing_goes_on() {
    let database = Database::new().await;
    let engine = Arc::new(database.engine().await);
    add(&engine, "a", 3000).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let publishing = {
        let (engine, is_over) = (engine.clone(), is_over.clone());
        tokio::spawn(async move {
            let mut count = 0;
            while !is_over.load(Ordering::SeqCst) {
                add(&engine, "a", 3).await;
                count += 1;
            }
            count
        })
    };
    for wanted in [ttl("a", 5000), ttl("a", 1000), ttl("a", YEAR_MS), nothing(), ttl("a", 400)] {
        apply(&database, &wanted).await.unwrap();
        assert!(steps(&database, &wanted).await.is_empty());
    }
    is_over.store(true, Ordering::SeqCst);
    let commits: u64 = publishing.await.unwrap();
    assert!(commits > 0);
    let ends = ends(&database, "a").await;
    assert_eq!(ends.len() as u64, 3000 + commits * 3);
    assert!(ends.iter().all(|end| *end == Some(400)), "an event kept the old expiry");
}

async fn rebuild(database: &Database, name: &str, keys: Document, options: IndexOptions) {
    let events = database.collection("events");
    events.drop_index(name).await.unwrap();
    let index = IndexModel::builder().keys(keys).options(options).build();
    events.create_index(index).await.unwrap();
}

async fn wrong_index() {
    let database = Database::new().await;
    let engine = database.engine().await;
    append(&engine, "a", &["1", "2"]).await;
    let plain = IndexOptions::default();
    rebuild(&database, "topic_1_seq_1", doc! { "topic": 1, "seq": 1 }, plain.clone()).await;
    let late = IndexOptions::builder()
        .expire_after(std::time::Duration::from_secs(60))
        .name("mine".to_owned())
        .build();
    rebuild(&database, "expireAt_1", doc! { "expireAt": 1 }, late).await;
    database.collection("events").drop_index("topic_1_key_1_ts_1").await.unwrap();
    // Additional indexes are left alone.
    let theirs = IndexModel::builder().keys(doc! { "sid": 1 }).build();
    database.collection("events").create_index(theirs).await.unwrap();
    let planned = steps(&database, &nothing()).await;
    assert_eq!(planned.len(), 3, "{planned:?}");
    assert!(planned[0].starts_with(
        "drop the index events (topic, seq), named topic_1_seq_1, and build (topic, seq) unique"
    ));
    assert_eq!(planned[1], "build the index events (topic, key, ts), over 2 documents");
    assert!(planned[2].starts_with("drop the index events (expireAt) TTL 60 s, named mine"));
    apply(&database, &nothing()).await.unwrap();
    assert!(steps(&database, &nothing()).await.is_empty());
    let names = database.collection("events").list_index_names().await.unwrap();
    assert!(names.contains(&"sid_1".to_owned()) && !names.contains(&"mine".to_owned()));
    assert_eq!(append(&database.engine().await, "a", &["1", "3"]).await, [1, 3]);
}

async fn duplicates() {
    let database = Database::new().await;
    let engine = database.engine().await;
    append(&engine, "a", &["1", "2"]).await;
    let plain = IndexOptions::default();
    rebuild(&database, "topic_1_seq_1", doc! { "topic": 1, "seq": 1 }, plain).await;
    let duplicate = doc! { "topic": "a", "seq": 2_i64, "id": "x", "ts": 5_i64, "json": "{}" };
    database.collection("events").insert_one(duplicate.clone()).await.unwrap();
    let named = |error: MongoError| {
        let text = error.to_string();
        assert!(matches!(error, MongoError::Duplicates { .. }), "{error:?}");
        assert!(text.contains("cannot build the index (topic, seq) unique on events"), "{text}");
        assert!(text.contains(r#"{ "topic": "a", "seq": 2 } 2 times"#), "{text}");
    };
    named(apply(&database, &nothing()).await.unwrap_err());
    let names = database.collection("events").list_index_names().await.unwrap();
    assert!(names.contains(&"topic_1_seq_1".to_owned()), "the old index still exists");
    // The same without an existing index.
    database.collection("events").drop_index("topic_1_seq_1").await.unwrap();
    named(apply(&database, &nothing()).await.unwrap_err());
    database.collection("events").delete_one(doc! { "id": "x" }).await.unwrap();
    apply(&database, &nothing()).await.unwrap();
    assert!(steps(&database, &nothing()).await.is_empty());
}

async fn refused_at_open() {
    let database = Database::new().await;
    let engine = database.engine().await;
    // On an empty collection the index is created silently.
    database.collection("events").drop_index("topic_1_id_1").await.unwrap();
    database.engine().await;
    assert!(steps(&database, &nothing()).await.is_empty());
    append(&engine, "a", &["1"]).await;
    // A missing non-unique index is only a warning.
    database.collection("events").drop_index("topic_1_ts_1_id_1").await.unwrap();
    assert_eq!(append(&database.engine().await, "a", &["2"]).await, [2]);
    assert_eq!(steps(&database, &nothing()).await.len(), 1, "it was not built silently");
    database.collection("events").drop_index("topic_1_id_1").await.unwrap();
    let Err(refused) = MongoEngine::open(&database.options).await else { panic!("it opened") };
    assert_eq!(
        refused.to_string(),
        "wrong indexes: events (topic, id) unique is missing; run prombus migrate --apply"
    );
    apply(&database, &nothing()).await.unwrap();
    database.engine().await;
}

async fn only_one() {
    let database = Database::new().await;
    let engine = database.engine().await;
    add(&engine, "a", 2500).await;
    // The first runs until the second waits for the lock.
    let slow = Migration::connect(&database.options).await.unwrap();
    let plan = slow.plan(&ttl("a", 1000)).await.unwrap();
    let database = Arc::new(database);
    let second = Arc::new(std::sync::Mutex::new(None));
    let start_second = |_: &Progress<'_>| {
        let mut second = second.lock().unwrap();
        if second.is_none() {
            let database = database.clone();
            *second = Some(tokio::spawn(async move {
                apply(&database, &ttl("a", 7000)).await.unwrap();
            }));
        }
        ControlFlow::Continue(())
    };
    slow.apply(&plan, &start_second).await.unwrap();
    let other = second.lock().unwrap().take().unwrap();
    other.await.unwrap();
    assert!(ends(&database, "a").await.iter().all(|end| *end == Some(7000)));
    assert!(steps(&database, &ttl("a", 7000)).await.is_empty());
}

async fn standalone() {
    let database = Database::at(&shared(Kind::Standalone).url()).await;
    let engine = database.engine().await;
    add(&engine, "a", 2500).await;
    assert!(!migration(&database).await.is_safe_while_in_use());
    for wanted in [Some(5000), Some(1000), None] {
        let all = wanted.map_or_else(nothing, |ms| ttl("a", ms));
        apply(&database, &all).await.unwrap();
        assert!(steps(&database, &all).await.is_empty());
        add(&engine, "a", 1).await;
        assert!(ends(&database, "a").await.iter().all(|end| *end == wanted.map(|ms| ms as i64)));
    }
}
