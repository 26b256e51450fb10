//! Several gateways on one database, beyond the cases of the contract.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use libtest_mimic::Trial;
use mongodb::bson::{Document, doc};
use prombus_engine::{
    Batch, CommitError, Conflict, Damaged, Engine, Expect, ReadBudget, ReadError, StateOp,
};
use prombus_engine_mongo::MongoEngine;
use prombus_proto::{Event, Seq};

use crate::database::{Database, append, event, key, of_events, of_state, put, topic, trial};
use prombus_test_mongod::{Kind, Mongod, shared};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("gateways::three_gateways_leave_no_gap_in_a_topic", three_on_one_topic),
        trial("gateways::no_gateway_puts_a_key_that_another_expects_to_be_absent", no_write_skew),
        trial("gateways::polling_wakes_a_watcher", by_polling),
        trial("gateways::gateways_continue_after_the_server_was_killed", server_killed),
        trial("gateways::acknowledged_events_survive_kills_of_the_server", killed_under_load),
        trial("gateways::a_transaction_of_a_dead_gateway_blocks_nobody", left_unfinished),
        trial("gateways::ending_a_transaction_needs_only_read_write_access", left_with_few_rights),
        trial("gateways::a_position_taken_by_another_program_is_skipped", taken_place),
        trial("gateways::leftovers_of_an_interrupted_trim_are_invisible", stopped_trim),
        trial("gateways::a_missing_event_is_reported", missing_event),
    ]
}

const EVERYTHING: ReadBudget = ReadBudget { events: usize::MAX, bytes: usize::MAX };

async fn three_on_one_topic() {
    let database = Database::new().await;
    let mut writers = tokio::task::JoinSet::new();
    for gateway in 0..3 {
        let engine = Arc::new(database.engine().await);
        for writer in 0..2 {
            let engine = engine.clone();
            writers.spawn(async move {
                for round in 0..10 {
                    let id = |n: usize| format!("{gateway}-{writer}-{round}-{n}");
                    let events: Vec<Event> = (0..3).map(|n| event("a", &id(n))).collect();
                    let counted =
                        put(&format!("count/{gateway}-{writer}"), &round.to_string(), None);
                    let batch = Batch { state: vec![counted], ..of_events(&events) };
                    let positions = engine.commit(batch).await.unwrap().positions;
                    let first = positions[0].seq.0;
                    let due: Vec<u64> = (first..first + 3).collect();
                    assert_eq!(positions.iter().map(|p| p.seq.0).collect::<Vec<_>>(), due);
                }
                drop(engine);
            });
        }
    }
    writers.join_all().await;
    let engine = database.engine().await;
    let read = engine.read(&topic("a"), Seq::ZERO, EVERYTHING).await.unwrap().events;
    let seqs: Vec<u64> = read.iter().map(|event| event.seq.0).collect();
    assert_eq!(seqs, (1..=180).collect::<Vec<u64>>());
    assert_eq!(engine.scan(b"count/", None, 10).await.unwrap().len(), 6);
}

/// Each puts one key and expects the other to be absent: serialised, one of them has to lose.
async fn no_write_skew() {
    let database = Database::new().await;
    let gateways = [Arc::new(database.engine().await), Arc::new(database.engine().await)];
    for round in 0..20 {
        let names = [format!("left{round}"), format!("right{round}")];
        let mut writers = tokio::task::JoinSet::new();
        for (mine, engine) in gateways.iter().enumerate() {
            let absent = StateOp::Delete { key: key(&names[1 - mine]), expect: Expect::Absent };
            let batch = of_state(vec![absent, put(&names[mine], "here", None)]);
            let engine = engine.clone();
            writers.spawn(async move { engine.commit(batch).await });
        }
        let answers = writers.join_all().await;
        let won = answers.iter().filter(|answer| answer.is_ok()).count();
        assert_eq!(won, 1, "{answers:?}");
        let lost = answers.into_iter().find_map(Result::err);
        assert!(matches!(lost, Some(CommitError::Conflict(Conflict::State { .. }))), "{lost:?}");
    }
}

async fn by_polling() {
    let database = Database::new().await;
    let (writer, reader) = (database.engine().await, database.polling_engine().await);
    let mut growth = reader.watch(&topic("a"));
    for last in 1..=3 {
        append(&writer, "a", &[&last.to_string()]).await;
        growth.wait_for(|seq| *seq == Seq(last)).await.unwrap();
    }
}

async fn server_killed() {
    let mut server = Mongod::start_on_thread(Kind::ReplicaSet);
    let database = Database::at(&server.url()).await;
    let (one, other) = (database.engine().await, database.engine().await);
    let mut growth = other.watch(&topic("a"));
    for round in 0..3u64 {
        let ids = [format!("{round}-1"), format!("{round}-2")];
        let positions = append(&one, "a", &[&ids[0], &ids[1]]).await;
        assert_eq!(positions, [round * 2 + 1, round * 2 + 2]);
        server = std::thread::spawn(move || {
            server.kill_and_restart();
            server
        })
        .join()
        .unwrap();
        growth.wait_for(|seq| *seq >= Seq(round * 2 + 2)).await.unwrap();
        assert_eq!(append(&other, "a", &[&ids[0]]).await, [round * 2 + 1]);
    }
    // The stream that broke three times still reports what the other gateway writes.
    append(&one, "a", &["last"]).await;
    growth.wait_for(|seq| *seq == Seq(7)).await.unwrap();
    let read = one.read(&topic("a"), Seq::ZERO, EVERYTHING).await.unwrap().events;
    assert_eq!(read.len(), 7);
    one.close().await.unwrap();
    other.close().await.unwrap();
    drop(server);
}

/// Commits until it is stopped. Retries each batch with the same ids until it is acknowledged.
async fn write_until(
    stop: Arc<AtomicBool>,
    engine: MongoEngine,
    name: usize,
) -> Vec<(u64, String)> {
    let mut acknowledged = Vec::new();
    for round in 0.. {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        let ids: Vec<String> = (0..2).map(|n| format!("{name}-{round}-{n}")).collect();
        let events: Vec<Event> = ids.iter().map(|id| event("a", id)).collect();
        let batch = Batch {
            state: vec![put(&format!("done/{name}"), &ids[1], None)],
            ..of_events(&events)
        };
        let committed = loop {
            match engine.commit(batch.clone()).await {
                Ok(committed) => break committed,
                Err(CommitError::Unavailable(_)) => {}
                Err(other) => panic!("{other}"),
            }
        };
        let seqs = committed.positions.iter().map(|position| position.seq.0);
        acknowledged.extend(seqs.zip(ids));
    }
    engine.close().await.unwrap();
    acknowledged
}

async fn killed_under_load() {
    let mut server = Mongod::start_on_thread(Kind::ReplicaSet);
    let database = Database::at(&server.url()).await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = tokio::task::JoinSet::new();
    for name in 0..2 {
        writers.spawn(write_until(stop.clone(), database.engine().await, name));
    }
    let reader = database.engine().await;
    let mut growth = reader.watch(&topic("a"));
    for _ in 0..3 {
        // Kill under load: more events were written since the last kill.
        let seen = *growth.borrow_and_update();
        growth.wait_for(|seq| seq.0 > seen.0 + 20).await.unwrap();
        server = tokio::task::spawn_blocking(move || {
            server.kill_and_restart();
            server
        })
        .await
        .unwrap();
    }
    let seen = *growth.borrow_and_update();
    growth.wait_for(|seq| seq.0 > seen.0 + 20).await.unwrap();
    stop.store(true, Ordering::SeqCst);
    let acknowledged: Vec<Vec<(u64, String)>> = writers.join_all().await;
    let read = reader.read(&topic("a"), Seq::ZERO, EVERYTHING).await.unwrap().events;
    let mut due: Vec<(u64, String)> = acknowledged.iter().flatten().cloned().collect();
    due.sort();
    let stored: Vec<(u64, String)> =
        read.iter().map(|event| (event.seq.0, event.id.to_string())).collect();
    assert_eq!(stored, due);
    assert!(stored.iter().map(|(seq, _)| *seq).eq(1..=stored.len() as u64), "a hole");
    for written in &acknowledged {
        let last = &written.last().unwrap().1;
        let name = last.split('-').next().unwrap();
        let entry = reader.get(&key(&format!("done/{name}"))).await.unwrap().unwrap();
        assert_eq!(entry.value, last.as_bytes());
    }
    reader.close().await.unwrap();
    drop(server);
}

/// The servers would keep the transaction for a minute, and a commit gives up after half of that.
async fn left_unfinished() {
    let url = shared(Kind::ReplicaSet).url();
    commits_behind_an_unfinished_one(&url, &Database::at(&url).await).await;
}

async fn left_with_few_rights() {
    let server = Mongod::start_on_thread(Kind::ReplicaSetWithUsers);
    server.add_user("root", "its-password");
    let url_of = |user: &str| {
        let who = format!("mongodb://{user}:its-password@");
        format!("{}&authSource=admin", server.url().replacen("mongodb://", &who, 1))
    };
    let root = mongodb::Client::with_uri_str(url_of("root")).await.unwrap();
    let rights = doc! { "role": "readWrite", "db": "events" };
    let user = doc! { "createUser": "bus", "pwd": "its-password", "roles": [rights] };
    root.database("admin").run_command(user).await.unwrap();
    let url = url_of("bus");
    commits_behind_an_unfinished_one(&url, &Database::named(&url, "events").await).await;
}

async fn commits_behind_an_unfinished_one(url: &str, database: &Database) {
    let engine = database.engine().await;
    append(&engine, "a", &["1"]).await;
    let dead = mongodb::Client::with_uri_str(format!("{url}&appName=prombus")).await.unwrap();
    let mut session = dead.start_session().await.unwrap();
    session.start_transaction().await.unwrap();
    let topics = dead.database(database.bare.name()).collection::<Document>("topics");
    let change = topics.update_one(doc! { "_id": "a" }, doc! { "$inc": { "next": 1 } });
    change.session(&mut session).await.unwrap();
    // Dropping the session would abort the transaction, as a live gateway does.
    std::mem::forget(session);
    assert_eq!(append(&engine, "a", &["2"]).await, [2]);
    engine.close().await.unwrap();
}

async fn taken_place() {
    let database = Database::new().await;
    let engine = database.engine().await;
    append(&engine, "a", &["1"]).await;
    let theirs = doc! { "topic": "a", "seq": 2_i64, "id": "theirs", "ts": 5_i64, "json": "{}" };
    database.collection("events").insert_one(theirs).await.unwrap();
    assert_eq!(append(&engine, "a", &["2", "1", "theirs", "3"]).await, [3, 1, 2, 4]);
    let read = engine.read(&topic("a"), Seq::ZERO, EVERYTHING).await.unwrap().events;
    assert_eq!(read.iter().map(|event| event.seq.0).collect::<Vec<_>>(), [1, 2, 3, 4]);
}

async fn stopped_trim() {
    let database = Database::new().await;
    let engine = database.engine().await;
    append(&engine, "a", &["1", "2", "3"]).await;
    let said = doc! { "$set": { "first": 3_i64 } };
    database.collection("topics").update_one(doc! { "_id": "a" }, said).await.unwrap();
    // The change is visible once a majority has it.
    let mut first = Seq::FIRST;
    while first != Seq(3) {
        first = engine.bounds(&topic("a")).await.unwrap().first;
    }
    let read = engine.read(&topic("a"), Seq::ZERO, EVERYTHING).await.unwrap().events;
    assert_eq!(read.len(), 1);
    assert_eq!(engine.seek_id(&topic("a"), &event("a", "1").id).await.unwrap(), None);
    assert_eq!(append(&engine, "a", &["1", "3"]).await, [4, 3]);
    engine.trim(&topic("a"), Seq(3)).await.unwrap();
    assert_eq!(database.collection("events").count_documents(doc! {}).await.unwrap(), 2);
}

async fn missing_event() {
    let database = Database::new().await;
    let engine = database.engine().await;
    append(&engine, "a", &["1", "2", "3", "4"]).await;
    let lost = doc! { "seq": { "$in": [2, 3] } };
    let concern = mongodb::options::WriteConcern::majority();
    database.collection("events").delete_many(lost).write_concern(concern).await.unwrap();
    let damaged = topic("a");
    let read = |from| engine.read(&damaged, Seq(from), EVERYTHING);
    assert_eq!(read(1).await.unwrap().events.len(), 1);
    match read(2).await {
        Err(ReadError::Damaged(Damaged::Events { first: Seq(2), last: Seq(3), .. })) => {}
        other => panic!("2 and 3 are missing: {other:?}"),
    }
    assert_eq!(read(4).await.unwrap().events.len(), 1);
}
