//! Events that the servers remove when they expire count as trimmed; any other gap is damage.

use libtest_mimic::Trial;
use mongodb::bson::{DateTime, doc};
use mongodb::options::{ReadConcern, WriteConcern};
use prombus_engine::{Bounds, Damaged, Engine, ReadBudget, ReadError, Retention};
use prombus_engine_mongo::MongoEngine;
use prombus_proto::{Clock, Event, Payload, Seq, SystemClock, Timestamp};

use crate::database::{Database, NOW, append, event, of_events, topic, trial, until};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("expiring::an_event_has_its_expiry_date", says_when),
        trial("expiring::readers_continue_after_the_servers_removed_the_front", front_removed),
        trial("expiring::all_events_of_a_topic_may_expire", all_removed),
        trial("expiring::events_that_expire_together_may_be_half_removed", half_removed),
        trial("expiring::a_gap_behind_an_unexpired_event_is_damage", damage),
        trial("expiring::without_a_ttl_a_missing_front_is_damage", no_ttl),
        trial("expiring::a_large_event_expires_with_its_parts", large),
        trial("expiring::an_event_whose_parts_expired_first_counts_as_trimmed", parts_first),
        trial("expiring::retention_and_trims_work_beside_a_ttl", rules_beside),
        trial("expiring::an_event_expires_after_it_was_stored_whatever_its_ts", stored_not_ts),
        trial("expiring::events_of_older_programs_are_as_old_as_their_object_id", older_age),
        trial("expiring::no_event_expires_before_one_of_an_older_program", older_expiry),
    ]
}

const EVERYTHING: ReadBudget = ReadBudget { events: usize::MAX, bytes: usize::MAX };
const DAY_MS: u64 = 86_400_000;
/// Long expired by every clock, with a TTL of a day.
const LONG_AGO: Timestamp = Timestamp(1_500_000_000_000);
/// Does not expire while the tests run.
const FAR_AHEAD: Timestamp = Timestamp(5_000_000_000_000);

pub(crate) fn at(topic_name: &str, id: &str, ts: Timestamp) -> Event {
    Event { ts, ..event(topic_name, id) }
}

/// Stores each event at the time of its `ts`.
async fn commit(database: &Database, engine: &MongoEngine, events: &[Event]) {
    for event in events {
        database.clock.set(event.ts);
        engine.commit(of_events(std::slice::from_ref(event))).await.unwrap();
    }
}

/// Sets the TTL as `prombus migrate` does for a topic without events.
async fn let_expire(database: &Database, name: &str, ttl_ms: i64) {
    let change = doc! { "$set": { "ttlMs": ttl_ms } };
    let topics = database.collection("topics");
    let by_name = doc! { "_id": name };
    topics.update_one(by_name, change).upsert(true).await.unwrap();
}

/// Counts what a majority has, as readers do.
async fn left(database: &Database) -> u64 {
    left_in(database, "events").await
}

async fn left_in(database: &Database, collection: &str) -> u64 {
    let all = database.collection(collection);
    all.count_documents(doc! {}).read_concern(ReadConcern::majority()).await.unwrap()
}

async fn remove(database: &Database, seqs: &[i64]) {
    let lost = doc! { "seq": { "$in": seqs } };
    let events = database.collection("events");
    events.delete_many(lost).write_concern(WriteConcern::majority()).await.unwrap();
}

async fn seqs(engine: &MongoEngine, name: &str, from: u64) -> Vec<u64> {
    let page = engine.read(&topic(name), Seq(from), EVERYTHING).await.unwrap();
    page.events.iter().map(|event| event.seq.0).collect()
}

async fn bounds(engine: &MongoEngine, name: &str) -> Bounds {
    engine.bounds(&topic(name)).await.unwrap()
}

/// The bytes of the existing events.
async fn bytes_there(engine: &MongoEngine, name: &str) -> u64 {
    let page = engine.read(&topic(name), Seq::ZERO, EVERYTHING).await.unwrap();
    page.events.iter().map(|event| event.json.len() as u64).sum()
}

async fn says_when() {
    let database = Database::new().await;
    let engine = database.engine().await;
    let_expire(&database, "a", 1000).await;
    let events = [
        at("a", "1", Timestamp(4_000_000_000_000)),
        // Earlier than its predecessor, but it expires no sooner.
        at("a", "2", Timestamp(3_000_000_000_000)),
        // Out of the range of dates.
        at("a", "3", Timestamp(u64::MAX)),
        at("a", "4", Timestamp(4_000_000_000_000)),
        at("other", "1", Timestamp(4_000_000_000_000)),
    ];
    commit(&database, &engine, &events).await;
    let end = |id: &'static str, name: &'static str| {
        let events = database.collection("events");
        async move {
            let found = events.find_one(doc! { "topic": name, "id": id }).await.unwrap().unwrap();
            found.get_datetime("expireAt").ok().copied()
        }
    };
    assert_eq!(end("1", "a").await, Some(DateTime::from_millis(4_000_000_001_000)));
    assert_eq!(end("2", "a").await, Some(DateTime::from_millis(4_000_000_001_000)));
    assert_eq!(end("3", "a").await, None);
    assert_eq!(end("4", "a").await, None);
    assert_eq!(end("1", "other").await, None);
}

async fn front_removed() {
    let database = Database::new().await;
    let engine = database.engine().await;
    let other = database.engine().await;
    let_expire(&database, "a", DAY_MS as i64).await;
    commit(&database, &engine, &[at("a", "1", LONG_AGO), at("a", "2", LONG_AGO.plus_ms(1))]).await;
    commit(&database, &engine, &[at("a", "3", FAR_AHEAD), at("a", "4", FAR_AHEAD)]).await;
    until(|| async { left(&database).await == 2 }).await;
    // A group reads the next event it has not received, and then where the topic starts.
    assert_eq!(seqs(&engine, "a", 2).await, [3, 4]);
    let now = bounds(&engine, "a").await;
    assert_eq!((now.first, now.next), (Seq(3), Seq(5)));
    assert_eq!(now.bytes, bytes_there(&engine, "a").await);
    assert_eq!(bounds(&other, "a").await, now);
    assert_eq!(engine.seek_time(&topic("a"), Timestamp(1)).await.unwrap(), Seq(3));
    assert_eq!(engine.seek_time(&topic("a"), FAR_AHEAD.plus_ms(1)).await.unwrap(), Seq(5));
    assert_eq!(engine.seek_id(&topic("a"), &event("a", "1").id).await.unwrap(), None);
    assert_eq!(engine.seek_id(&topic("a"), &event("a", "3").id).await.unwrap(), Some(Seq(3)));
    // The id may be used again, the position may not.
    assert_eq!(append(&engine, "a", &["1", "3"]).await, [5, 3]);
}

async fn all_removed() {
    let database = Database::new().await;
    let engine = database.engine().await;
    let_expire(&database, "a", DAY_MS as i64).await;
    commit(&database, &engine, &[at("a", "1", LONG_AGO), at("a", "2", LONG_AGO)]).await;
    until(|| async { left(&database).await == 0 }).await;
    let now = bounds(&engine, "a").await;
    assert_eq!((now.first, now.next, now.bytes), (Seq(3), Seq(3), 0));
    assert!(seqs(&engine, "a", 0).await.is_empty());
    assert_eq!(engine.topics().await.unwrap(), [topic("a")]);
    commit(&database, &engine, &[at("a", "3", FAR_AHEAD)]).await;
    assert_eq!(seqs(&engine, "a", 1).await, [3]);
    assert_eq!(bounds(&engine, "a").await.bytes, bytes_there(&engine, "a").await);
}

/// Lets events expire by the servers' clock.
async fn expire(database: &Database, seqs: &[i64]) {
    let some = doc! { "seq": { "$in": seqs } };
    let end = doc! { "$set": { "expireAt": DateTime::from_millis(1_500_000_000_000) } };
    let events = database.collection("events");
    events.update_many(some, end).write_concern(WriteConcern::majority()).await.unwrap();
}

async fn half_removed() {
    let database = Database::new().await;
    let engine = database.engine().await;
    let_expire(&database, "a", DAY_MS as i64).await;
    let events: Vec<Event> = (1..=6).map(|n| at("a", &n.to_string(), FAR_AHEAD)).collect();
    commit(&database, &engine, &events).await;
    // Without the index only the test removes events.
    database.collection("events").drop_index("expireAt_1").await.unwrap();
    expire(&database, &[1, 2, 3, 4]).await;
    remove(&database, &[1, 3, 4]).await;
    // 2 has expired and still exists.
    assert_eq!(seqs(&engine, "a", 1).await, [2]);
    assert_eq!(seqs(&engine, "a", 3).await, [5, 6]);
    let now = bounds(&engine, "a").await;
    assert_eq!((now.first, now.bytes), (Seq(5), bytes_there(&engine, "a").await));
    assert_eq!(left(&database).await, 2, "2 was removed with the others");
}

async fn damage() {
    let database = Database::new().await;
    let engine = database.engine().await;
    let_expire(&database, "a", DAY_MS as i64).await;
    let events: Vec<Event> = (1..=5).map(|n| at("a", &n.to_string(), FAR_AHEAD)).collect();
    commit(&database, &engine, &events).await;
    remove(&database, &[1, 3, 4]).await;
    assert_eq!(seqs(&engine, "a", 1).await, [2], "the front may expire");
    match engine.read(&topic("a"), Seq(3), EVERYTHING).await {
        Err(ReadError::Damaged(Damaged::Events { first: Seq(3), last: Seq(4), .. })) => {}
        other => panic!("3 and 4 are missing: {other:?}"),
    }
    assert_eq!(seqs(&engine, "a", 5).await, [5]);
    assert_eq!(bounds(&engine, "a").await.first, Seq(2));
}

async fn no_ttl() {
    let database = Database::new().await;
    let engine = database.engine().await;
    append(&engine, "a", &["1", "2", "3"]).await;
    remove(&database, &[1]).await;
    let read = engine.read(&topic("a"), Seq(1), EVERYTHING).await;
    assert!(matches!(read, Err(ReadError::Damaged(_))), "{read:?}");
    assert_eq!(bounds(&engine, "a").await.first, Seq(1));
}

/// Larger than one document may be.
fn large_event(name: &str, id: &str, ts: Timestamp) -> Event {
    let text = format!("\"{}\"", "x".repeat(9 << 20));
    Event { payload: Payload::parse(text.into()).unwrap(), ..at(name, id, ts) }
}

async fn large() {
    let database = Database::new().await;
    let engine = database.engine().await;
    let_expire(&database, "a", DAY_MS as i64).await;
    commit(
        &database,
        &engine,
        &[large_event("a", "1", LONG_AGO), large_event("a", "2", FAR_AHEAD)],
    )
    .await;
    let parts = || left_in(&database, "event_parts");
    until(|| async { left(&database).await == 1 && parts().await == 2 }).await;
    assert_eq!(seqs(&engine, "a", 1).await, [2]);
    assert_eq!(bounds(&engine, "a").await.bytes, bytes_there(&engine, "a").await);
}

async fn parts_first() {
    let database = Database::new().await;
    let engine = database.engine().await;
    let_expire(&database, "a", DAY_MS as i64).await;
    commit(&database, &engine, &[large_event("a", "1", FAR_AHEAD), at("a", "2", FAR_AHEAD)]).await;
    database.collection("events").drop_index("expireAt_1").await.unwrap();
    let parts = database.collection("event_parts");
    parts.delete_many(doc! {}).write_concern(WriteConcern::majority()).await.unwrap();
    let read = engine.read(&topic("a"), Seq(1), EVERYTHING).await;
    assert!(matches!(read, Err(ReadError::Damaged(_))), "it has not expired: {read:?}");
    expire(&database, &[1]).await;
    assert_eq!(seqs(&engine, "a", 1).await, [2]);
    assert_eq!(bounds(&engine, "a").await.first, Seq(2));
}

async fn rules_beside() {
    let database = Database::new().await;
    let engine = database.engine().await;
    let_expire(&database, "a", DAY_MS as i64).await;
    let events: Vec<Event> = (1..=9).map(|n| at("a", &n.to_string(), FAR_AHEAD)).collect();
    commit(&database, &engine, &events).await;
    let each = bounds(&engine, "a").await.bytes / 9;
    remove(&database, &[1, 2]).await;
    let keep_four = Retention { max_age_ms: Some(DAY_MS), max_bytes: Some(each * 4), revision: 1 };
    let now = engine.retain(&topic("a"), &keep_four).await.unwrap();
    assert_eq!((now.first, now.bytes), (Seq(6), each * 4));
    // The last event to trim is already missing.
    remove(&database, &[6, 7]).await;
    let now = engine.trim(&topic("a"), Seq(8)).await.unwrap();
    assert_eq!((now.first, now.bytes), (Seq(8), each * 2));
    assert_eq!(seqs(&engine, "a", 1).await, [8, 9]);
}

async fn expiries(database: &Database, name: &str) -> Vec<i64> {
    let events = database.collection("events");
    let mut found = events.find(doc! { "topic": name }).sort(doc! { "seq": 1 }).await.unwrap();
    let mut expiries = Vec::new();
    while found.advance().await.unwrap() {
        let date = found.deserialize_current().unwrap().get_datetime("expireAt").copied();
        expiries.push(date.unwrap().timestamp_millis());
    }
    expiries
}

async fn stored_not_ts() {
    let database = Database::new().await;
    let engine = database.engine().await;
    let_expire(&database, "a", 1000).await;
    let events = [at("a", "1", Timestamp(0)), at("a", "2", FAR_AHEAD), at("a", "3", LONG_AGO)];
    engine.commit(of_events(&events)).await.unwrap();
    database.clock.advance_ms(5);
    append(&engine, "a", &["4"]).await;
    let stored = i64::try_from(NOW.0).unwrap() + 1000;
    assert_eq!(expiries(&database, "a").await, [stored, stored, stored, stored + 5]);
}

/// Makes all events look as if a program had stored them that does not record when.
async fn forget_when_stored(database: &Database) {
    for name in ["events", "topics"] {
        let forget = doc! { "$unset": { "storedAt": "", "expiryFloor": "" } };
        database.collection(name).update_many(doc! {}, forget).await.unwrap();
    }
}

async fn older_age() {
    const HOUR_MS: u64 = 3_600_000;
    let database = Database::new().await;
    let engine = database.engine().await;
    let events = [at("a", "1", Timestamp(0)), at("a", "2", FAR_AHEAD), at("a", "3", LONG_AGO)];
    engine.commit(of_events(&events)).await.unwrap();
    forget_when_stored(&database).await;
    let engine = database.engine().await;
    // The servers made the object ids, by their own clock.
    let really_now = SystemClock.now();
    let keep_an_hour = Retention { max_age_ms: Some(HOUR_MS), ..Retention::default() };
    database.clock.set(really_now.plus_ms(HOUR_MS / 2));
    engine.retain(&topic("a"), &keep_an_hour).await.unwrap();
    assert_eq!(seqs(&engine, "a", 1).await, [1, 2, 3]);
    database.clock.set(really_now.plus_ms(2 * HOUR_MS));
    append(&engine, "a", &["4"]).await;
    engine.retain(&topic("a"), &keep_an_hour).await.unwrap();
    assert_eq!(seqs(&engine, "a", 1).await, [4]);
}

async fn older_expiry() {
    let database = Database::new().await;
    let_expire(&database, "a", 1000).await;
    let engine = database.engine().await;
    commit(&database, &engine, &[at("a", "1", FAR_AHEAD)]).await;
    forget_when_stored(&database).await;
    let engine = database.engine().await;
    database.clock.set(NOW);
    append(&engine, "a", &["2"]).await;
    let far_ahead = i64::try_from(FAR_AHEAD.0).unwrap() + 1000;
    assert_eq!(expiries(&database, "a").await, [far_ahead; 2]);
    database.clock.set(FAR_AHEAD.plus_ms(1));
    append(&engine, "a", &["3"]).await;
    assert_eq!(expiries(&database, "a").await[2], far_ahead + 1);
}
