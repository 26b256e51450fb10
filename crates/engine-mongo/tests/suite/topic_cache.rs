//! Commits use a cache of topics. Whatever changed a topic since, no commit builds on a stale
//! entry.

use std::sync::Arc;

use libtest_mimic::Trial;
use mongodb::bson::{Document, doc};
use prombus_engine::{
    Batch, CommitError, Conflict, Durability, Engine, Expect, ReadBudget, Retention, StateOp,
    StoredEvent, Version,
};
use prombus_engine_mongo::MongoEngine;
use prombus_proto::Seq;
use prombus_test_mongod::{Kind, Mongod};

use crate::database::{Database, append, event, key, of_events, put, topic, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("topic_cache::only_the_first_commit_reads_the_topic", reads_once),
        trial("topic_cache::two_gateways_alternate_on_one_topic", alternating),
        trial("topic_cache::two_gateways_write_to_the_same_topics_concurrently", several_topics),
        trial("topic_cache::a_trim_by_another_gateway_moves_no_event", forgotten_between),
        trial("topic_cache::positions_that_were_rolled_back_are_assigned_again", taken_back),
        trial("topic_cache::another_history_with_the_same_end_is_noticed", other_history),
        trial("topic_cache::a_changed_ttl_takes_effect_at_once", ttl_between),
        trial("topic_cache::a_deleted_topic_starts_over", topic_gone),
        trial(
            "topic_cache::an_expected_last_position_is_checked_against_the_database",
            expected_last,
        ),
        trial("topic_cache::a_duplicate_id_is_found_despite_the_cache", known_id),
        trial("topic_cache::a_rejected_commit_changes_no_position", refused),
        trial("topic_cache::events_lost_in_a_crash_are_not_built_on", killed_between),
    ]
}

const EVERYTHING: ReadBudget = ReadBudget { events: usize::MAX, bytes: usize::MAX };

async fn stored(engine: &MongoEngine, name: &str) -> Vec<StoredEvent> {
    engine.read(&topic(name), Seq::ZERO, EVERYTHING).await.unwrap().events
}

/// Asserts that the topic's document and its events agree: no gap, and totals that add up.
async fn assert_adds_up(database: &Database, engine: &MongoEngine, name: &str, due: u64) {
    let events = stored(engine, name).await;
    let seqs: Vec<u64> = events.iter().map(|event| event.seq.0).collect();
    assert_eq!(seqs, (1..=due).collect::<Vec<u64>>());
    let mut bytes = 0;
    for event in &events {
        bytes += i64::try_from(event.json.len()).unwrap();
        let place = doc! { "topic": name, "seq": i64::try_from(event.seq.0).unwrap() };
        let document = database.collection("events").find_one(place).await.unwrap().unwrap();
        assert_eq!(document.get_i64("bytes").unwrap(), bytes, "{name} {}", event.seq.0);
    }
    let document = topic_document(database, name).await;
    assert_eq!(document.get_i64("bytes").unwrap(), bytes);
    assert_eq!(document.get_i64("next").unwrap(), i64::try_from(due).unwrap() + 1);
}

async fn topic_document(database: &Database, name: &str) -> Document {
    database.collection("topics").find_one(doc! { "_id": name }).await.unwrap().unwrap()
}

async fn topic_queries(database: &Database) -> u64 {
    let queries = doc! { "ns": format!("{}.topics", database.bare.name()), "op": "query" };
    database.collection("system.profile").count_documents(queries).await.unwrap()
}

async fn reads_once() {
    let database = Database::new().await;
    let (one, other) = (database.engine().await, database.engine().await);
    append(&other, "b", &["1"]).await;
    database.bare.run_command(doc! { "profile": 2 }).await.unwrap();
    append(&one, "a", &["1"]).await;
    let at_first = topic_queries(&database).await;
    assert_eq!(at_first, 1);
    for id in ["2", "3", "4"] {
        append(&one, "a", &[id]).await;
    }
    assert_eq!(topic_queries(&database).await, at_first);
    // If one of the topics is not cached, both are read.
    let both = of_events(&[event("a", "5"), event("b", "2")]);
    let positions = one.commit(both).await.unwrap().positions;
    assert_eq!(positions.iter().map(|p| p.seq.0).collect::<Vec<_>>(), [5, 2]);
    assert_eq!(topic_queries(&database).await, at_first + 1);
}

async fn alternating() {
    let database = Database::new().await;
    // One has a change stream, the other polls.
    let gateways = [database.engine().await, database.polling_engine().await];
    let mut due = 0;
    for round in 0..12 {
        let engine = &gateways[usize::from(round % 3 == 0)];
        let ids = [format!("{round}-1"), format!("{round}-2")];
        assert_eq!(append(engine, "a", &[&ids[0], &ids[1]]).await, [due + 1, due + 2]);
        due += 2;
    }
    assert_adds_up(&database, &gateways[0], "a", due).await;
}

async fn several_topics() {
    let database = Database::new().await;
    let mut writers = tokio::task::JoinSet::new();
    for gateway in 0..2 {
        let engine = Arc::new(database.engine().await);
        for writer in 0..2 {
            let engine = engine.clone();
            writers.spawn(async move {
                for round in 0..15 {
                    let id = format!("{gateway}-{writer}-{round}");
                    // Pairs of topics in both orders, and single topics.
                    let names = [["a", "b"], ["b", "c"], ["c", "a"], ["a", "a"]];
                    let pair = names[(round + writer) % names.len()];
                    let mut events = vec![event(pair[0], &id)];
                    if pair[0] != pair[1] {
                        events.push(event(pair[1], &id));
                    }
                    let counted =
                        put(&format!("count/{gateway}-{writer}"), &round.to_string(), None);
                    let batch = Batch { state: vec![counted], ..of_events(&events) };
                    engine.commit(batch).await.unwrap();
                }
                drop(engine);
            });
        }
    }
    writers.join_all().await;
    let engine = database.engine().await;
    for name in ["a", "b", "c"] {
        let count = stored(&engine, name).await.len();
        assert!(count > 0);
        assert_adds_up(&database, &engine, name, count as u64).await;
    }
}

async fn forgotten_between() {
    let database = Database::new().await;
    let (one, other) = (database.engine().await, database.engine().await);
    append(&one, "a", &["1", "2", "3"]).await;
    other.trim(&topic("a"), Seq(3)).await.unwrap();
    assert_eq!(append(&one, "a", &["4"]).await, [4]);
    assert_eq!(one.bounds(&topic("a")).await.unwrap().first, Seq(3));
    let nothing = Retention { revision: 7, max_age_ms: None, max_bytes: Some(0) };
    other.retain(&topic("a"), &nothing).await.unwrap();
    // Trimmed ids may be used again, even by the gateway that wrote them.
    assert_eq!(append(&one, "a", &["1", "5"]).await, [5, 6]);
    let left = one.bounds(&topic("a")).await.unwrap();
    assert_eq!((left.first, left.next), (Seq(5), Seq(7)));
    let bytes: usize = stored(&one, "a").await.iter().map(|event| event.json.len()).sum();
    assert_eq!(left.bytes, bytes as u64);
}

/// Simulates an election that rolls back a buffered commit.
async fn taken_back() {
    let database = Database::new().await;
    let engine = database.engine().await;
    append(&engine, "a", &["1"]).await;
    let before = topic_document(&database, "a").await;
    let lost = Batch { durability: Durability::Buffered, ..of_events(&[event("a", "lost")]) };
    engine.commit(lost).await.unwrap();
    let topics = database.collection("topics");
    topics.replace_one(doc! { "_id": "a" }, before).await.unwrap();
    database.collection("events").delete_one(doc! { "id": "lost" }).await.unwrap();
    assert_eq!(append(&engine, "a", &["2", "3"]).await, [2, 3]);
    assert_adds_up(&database, &engine, "a", 3).await;
}

/// Simulates an election after which another gateway wrote as many events, and larger ones.
async fn other_history() {
    let database = Database::new().await;
    let engine = database.engine().await;
    append(&engine, "a", &["1"]).await;
    let topics = database.collection("topics");
    let larger = doc! { "$set": { "bytes": 100_000_i64, "latestTs": 5_000_000_000_000_i64 } };
    topics.update_one(doc! { "_id": "a" }, larger).await.unwrap();
    assert_eq!(append(&engine, "a", &["2"]).await, [2]);
    let second = database.collection("events").find_one(doc! { "seq": 2 }).await.unwrap().unwrap();
    assert!(second.get_i64("bytes").unwrap() > 100_000);
    assert_eq!(second.get_i64("latestTs").unwrap(), 5_000_000_000_000);
}

async fn ttl_between() {
    let database = Database::new().await;
    let engine = database.engine().await;
    append(&engine, "a", &["1"]).await;
    let topics = database.collection("topics");
    let a = doc! { "_id": "a" };
    topics.update_one(a.clone(), doc! { "$set": { "ttlMs": 1000_i64 } }).await.unwrap();
    append(&engine, "a", &["2"]).await;
    topics.update_one(a, doc! { "$unset": { "ttlMs": 1 } }).await.unwrap();
    append(&engine, "a", &["3"]).await;
    let ends = doc! { "topic": "a", "expireAt": { "$exists": true } };
    let ending = database.collection("events").find_one(ends.clone()).await.unwrap().unwrap();
    assert_eq!(ending.get_i64("seq").unwrap(), 2);
    assert_eq!(database.collection("events").count_documents(ends).await.unwrap(), 1);
}

async fn topic_gone() {
    let database = Database::new().await;
    let engine = database.engine().await;
    append(&engine, "a", &["1", "2"]).await;
    for collection in ["topics", "events"] {
        database.collection(collection).delete_many(doc! {}).await.unwrap();
    }
    assert_eq!(append(&engine, "a", &["3"]).await, [1]);
    assert_adds_up(&database, &engine, "a", 1).await;
}

async fn expected_last() {
    let database = Database::new().await;
    let (one, other) = (database.engine().await, database.polling_engine().await);
    append(&one, "a", &["1"]).await;
    append(&other, "a", &["2"]).await;
    let expecting = |last| Batch {
        expected_last: vec![(topic("a"), Seq(last))],
        ..of_events(&[event("a", "3")])
    };
    match one.commit(expecting(1)).await {
        Err(CommitError::Conflict(Conflict::Last { actual: Seq(2), .. })) => {}
        answer => panic!("the other one wrote 2: {answer:?}"),
    }
    assert_eq!(one.commit(expecting(2)).await.unwrap().positions[0].seq, Seq(3));
    assert_adds_up(&database, &one, "a", 3).await;
}

async fn known_id() {
    let database = Database::new().await;
    let (one, other) = (database.engine().await, database.engine().await);
    append(&one, "a", &["1", "2"]).await;
    assert_eq!(append(&one, "a", &["2", "3"]).await, [2, 3]);
    assert_eq!(append(&other, "a", &["3", "1", "4"]).await, [3, 1, 4]);
    assert_eq!(append(&one, "a", &["4", "5"]).await, [4, 5]);
    assert_adds_up(&database, &one, "a", 5).await;
}

async fn refused() {
    let database = Database::new().await;
    let engine = database.engine().await;
    append(&engine, "a", &["1"]).await;
    let expected = StateOp::Delete { key: key("k"), expect: Expect::Version(Version(7)) };
    let batch = Batch { state: vec![expected], ..of_events(&[event("a", "2")]) };
    let answer = engine.commit(batch).await;
    assert!(matches!(answer, Err(CommitError::Conflict(Conflict::State { .. }))), "{answer:?}");
    assert_eq!(append(&engine, "a", &["3"]).await, [2]);
    assert_adds_up(&database, &engine, "a", 2).await;
}

async fn killed_between() {
    let mut server = Mongod::start_on_thread(Kind::ReplicaSet);
    let database = Database::at(&server.url()).await;
    let (one, other) = (database.engine().await, database.engine().await);
    append(&one, "a", &["1"]).await;
    let mut due = 1;
    for round in 0..2 {
        // Buffered: it may be lost in the crash.
        let id = format!("lost-{round}");
        let lost = Batch { durability: Durability::Buffered, ..of_events(&[event("a", &id)]) };
        one.commit(lost).await.unwrap();
        server = tokio::task::spawn_blocking(move || {
            server.kill_and_restart();
            server
        })
        .await
        .unwrap();
        let is_there = {
            let found = database.collection("events").find_one(doc! { "id": &id }).await;
            found.unwrap().is_some()
        };
        due += u64::from(is_there);
        let (first, second) = (format!("{round}-1"), format!("{round}-2"));
        assert_eq!(append(&one, "a", &[&first]).await, [due + 1]);
        assert_eq!(append(&other, "a", &[&second]).await, [due + 2]);
        due += 2;
    }
    assert_adds_up(&database, &one, "a", due).await;
    one.close().await.unwrap();
    other.close().await.unwrap();
    drop(server);
}
