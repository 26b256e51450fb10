//! Databases written by older programs, as files with the documents of one collection each, and
//! their expected contents.
//!
//! The folders below `tests/fixtures` were written with `PROMBUS_WRITE_FIXTURE=<folder>` when their
//! layouts were new, and must not be written again: they are what users have.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use mongodb::bson::{Document, doc};
use prombus_engine::{Batch, Engine, Retention};
use prombus_proto::{Event, EventId, Headers, Key, Payload, Seq, Timestamp};

use crate::database::{Database, NOW, of_events, of_state, put, topic};

const WRITE: &str = "PROMBUS_WRITE_FIXTURE";
/// The file that holds the indexes.
const INDEXES: &str = "indexes";

/// Retained for ten years, as set at run time.
pub(crate) const LONG: &str = "fixture.long";
/// Without a retention.
pub(crate) const FOREVER: &str = "fixture.forever";
pub(crate) const EVENTS: u64 = 60;
pub(crate) const FIRST_OF_LONG: Seq = Seq(11);

pub(crate) fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// Event number `n` of a topic: some with a key, with past timestamps in no particular order.
pub(crate) fn event(topic_name: &str, n: u64) -> Event {
    let id = match n % 2 {
        0 => format!("text-{n}"),
        _ => format!("0190f5e4-8d4b-7c3a-9f2e-{n:012x}"),
    };
    Event {
        id: EventId::new(&id).unwrap(),
        ts: Timestamp(1_700_000_000_000 + n * 7919 % 1000),
        topic: topic(topic_name),
        key: n.is_multiple_of(2).then(|| Key::new(&format!("key-{n}")).unwrap()),
        headers: Headers::new(n.is_multiple_of(5).then(|| ("h".to_owned(), "é".to_owned())))
            .unwrap(),
        payload: Payload::parse(Bytes::from(format!("{{\"n\": {n}, \"text\": \"ü\"}}"))).unwrap(),
        caused_by: vec![],
        tags: vec![],
        sid: None,
    }
}

/// Writes a database of the current layout to files if the environment asks for it, and exits.
pub(crate) fn write_if_asked() {
    let Some(folder) = std::env::var_os(WRITE) else { return };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(write(Path::new(&folder)));
    prombus_test_mongod::stop_shared();
    std::process::exit(0);
}

async fn write(folder: &Path) {
    let database = Database::new().await;
    let engine = database.engine().await;
    for n in (1..=EVENTS).step_by(10) {
        let events = [LONG, FOREVER].map(|name| (n..n + 10).map(move |n| event(name, n)));
        let events: Vec<Event> = events.into_iter().flatten().collect();
        let state = vec![put(&format!("count/{n}"), &n.to_string(), None)];
        engine.commit(Batch { state, ..of_events(&events) }).await.unwrap();
    }
    let ten_years = r#"{"v":1,"retention_ms":315360000000}"#;
    let cursor = r#"{"v":1,"floor":41,"last_id":"text-40","last_ts":1700000000000,"created":1}"#;
    let state = vec![
        put(&format!("topic/{LONG}"), ten_years, None),
        put(&format!("cursor/{LONG}::billing/0"), cursor, None),
        put(&format!("dedupe/{LONG}::billing::text-40"), "1", Some(NOW.plus_ms(1000))),
    ];
    engine.commit(of_state(state)).await.unwrap();
    engine.trim(&topic(LONG), FIRST_OF_LONG).await.unwrap();
    let everything = Retention { max_age_ms: None, max_bytes: Some(1 << 20), revision: 7 };
    engine.retain(&topic(FOREVER), &everything).await.unwrap();
    engine.close().await.unwrap();
    dump(&database.bare, folder).await;
}

async fn dump(bare: &mongodb::Database, folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    let mut indexes = File::create(folder.join(INDEXES).with_extension("bson")).unwrap();
    for name in bare.list_collection_names().await.unwrap() {
        let collection = bare.collection::<Document>(&name);
        let mut file = File::create(folder.join(&name).with_extension("bson")).unwrap();
        let mut found = collection.find(doc! {}).await.unwrap();
        while found.advance().await.unwrap() {
            found.deserialize_current().unwrap().to_writer(&mut file).unwrap();
        }
        let listed = bare.run_command(doc! { "listIndexes": &name }).await.unwrap();
        let listed = listed.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
        for index in listed {
            let of = doc! { "collection": &name, "index": index.clone() };
            of.to_writer(&mut indexes).unwrap();
        }
    }
}

/// Restores the fixture `name` into `bare`, including its indexes.
pub(crate) async fn restore(bare: &mongodb::Database, name: &str) {
    for listed in documents(&folder(name).join(INDEXES).with_extension("bson")) {
        let collection = listed.get_str("collection").unwrap();
        let index = listed.get_document("index").unwrap().clone();
        if index.get_str("name").unwrap() == "_id_" {
            bare.create_collection(collection).await.unwrap();
            continue;
        }
        let make = doc! { "createIndexes": collection, "indexes": [index] };
        bare.run_command(make).await.unwrap();
    }
    for file in fs::read_dir(folder(name)).unwrap() {
        let file = file.unwrap().path();
        let collection = file.file_stem().unwrap().to_str().unwrap();
        let documents = documents(&file);
        if collection != INDEXES && !documents.is_empty() {
            bare.collection(collection).insert_many(documents).await.unwrap();
        }
    }
}

fn documents(file: &Path) -> Vec<Document> {
    let mut bytes = BufReader::new(File::open(file).unwrap());
    let mut documents = Vec::new();
    while !std::io::BufRead::fill_buf(&mut bytes).unwrap().is_empty() {
        documents.push(Document::from_reader(&mut bytes).unwrap());
    }
    documents
}
