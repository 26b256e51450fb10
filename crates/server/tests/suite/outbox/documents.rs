//! Documents become events, or errors with a reason.

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, Uuid, doc};
use serde_json::json;

use super::database::{Database, pending};
use super::worker::{events, ids, once};
use crate::cli::server::Server;

const TOKENS: &str = r#"auth.tokens=[{token="shop",scopes=["publish:t","subscribe:t"]}]"#;

fn with(id: &str, name: &str, value: impl Into<Bson>) -> Document {
    let mut document = pending(id, 1, None);
    document.insert(name, value.into());
    document
}

#[tokio::test]
async fn a_document_becomes_an_event() {
    let (database, server) = (Database::start().await, Server::start(&[]));
    let mut full = pending("o-1", 5, Some("c-7"));
    full.insert("headers", doc! { "source": "shop" });
    full.insert("payload", doc! { "z": 1.0, "a": [DateTime::from_millis(0), Bson::Null] });
    let object_id = ObjectId::parse_str("65f0c0ffee65f0c0ffee65f0").unwrap();
    let uuid = Uuid::parse_str("0190f5e4-8d4b-7c3a-9f2e-0123456789ab").unwrap();
    let mut by_object_id = pending("", 6, None);
    by_object_id.insert("_id", object_id);
    let mut by_uuid = pending("", 7, None);
    by_uuid.insert("_id", uuid);
    // `attempts` is optional: workers count.
    by_uuid.remove("attempts");
    by_uuid.insert("ts", 1_700_000_000_007.0);
    database.insert([full, by_object_id, by_uuid]).await;
    let ran = once(&database, &server, &[]);
    let summary = json!({ "sent": 3, "duplicates": 0, "errors": 0, "taken_over": 0 });
    assert_eq!((ran.lines(), ran.err.as_str()), (vec![summary], ""));
    let events = events(&server, "t");
    let event = |id: &str| events.iter().find(|event| event["id"] == id).unwrap();
    let first = event("o-1");
    assert_eq!(first["key"], "c-7");
    assert_eq!(
        (&first["ts"], &first["headers"]),
        (&json!(1_700_000_000_005_i64), &json!({ "source": "shop" }))
    );
    assert_eq!(first["payload"].to_string(), r#"{"a":["1970-01-01T00:00:00.000Z",null],"z":1}"#);
    assert_eq!(event("65f0c0ffee65f0c0ffee65f0")["ts"], 1_700_000_000_006_i64);
    assert_eq!(event(&uuid.to_string())["ts"], 1_700_000_000_007_i64);
    let sent = database.get("o-1").await;
    assert_eq!(
        (sent.get_str("status").ok(), sent.get_i64("seq").ok()),
        (Some("sent"), first["seq"].as_i64())
    );
    assert_eq!(sent.get_i32("attempts").ok(), Some(1));
    assert!(sent.get_datetime("sent_at").is_ok());
    assert!(["lease_id", "lease_owner", "lease_until"].iter().all(|name| !sent.contains_key(name)));
    assert_eq!(once(&database, &server, &[]).lines()[0]["sent"], 0, "nothing is sent again");
}

#[tokio::test]
async fn bad_documents_are_marked_and_block_no_other_key() {
    let (database, server) = (Database::start().await, Server::start(&[TOKENS]));
    let mut no_payload = pending("no-payload", 1, None);
    no_payload.remove("payload");
    let mut number = pending("", 1, None);
    number.insert("_id", 7);
    let deep = (0..101).fold(Bson::Null, |inner, _| Bson::Array(vec![inner]));
    let mut bad = vec![
        (no_payload, "bad_frame", "payload: is missing"),
        (number, "bad_frame", "_id: must be a string, an ObjectId or a UUID, not Int32"),
        (
            with("nan", "payload", doc! { "a": [f64::NAN] }),
            "bad_json",
            "payload.a[0]: NaN has no JSON representation",
        ),
        (with("topic", "topic", "No Topic"), "bad_topic", "topic: "),
        (with("no-topic", "topic", Bson::Null), "bad_topic", "topic: is missing"),
        (with("key", "key", vec!["k"]), "bad_frame", "key: must be a string, not Array"),
        (with("ts", "ts", "yesterday"), "bad_frame", "ts: must be a date"),
        (with("headers", "headers", doc! { "n": 1 }), "bad_frame", "headers.n: must be a string"),
        (with("large", "payload", "x".repeat(2 << 20)), "payload_too_large", "a frame of"),
        // Only the server can tell.
        (with("deep", "payload", deep), "bad_frame", "payload nests 101 levels"),
        (with("forbidden", "topic", "secret"), "forbidden", "secret"),
    ];
    bad[7].0.insert("attempts", "no number");
    let good = (0..50).map(|n| pending(&format!("good-{n:02}"), n, Some(&format!("k{}", n % 5))));
    database.insert(good).await;
    database.insert(bad.iter().map(|(document, ..)| document.clone())).await;
    let ran = once(&database, &server, &["--token", "shop"]);
    ran.failed_with("11 documents were rejected; each is marked with the reason");
    ran.failed_with(
        "document nan was rejected: bad_json: payload.a[0]: NaN has no JSON representation",
    );
    assert_eq!(ran.code, Some(1));
    let summary = json!({ "sent": 50, "duplicates": 0, "errors": 11, "taken_over": 0 });
    assert_eq!(ran.json(), [summary]);
    for (document, code, message) in bad {
        let id = document.get("_id").unwrap();
        let marked = database.outbox.find_one(doc! { "_id": id }).await.unwrap().unwrap();
        let error = marked.get_document("error").unwrap();
        assert_eq!(
            (marked.get_str("status").ok(), error.get_str("code").ok()),
            (Some("error"), Some(code)),
            "{marked}"
        );
        assert!(error.get_str("message").unwrap().contains(message), "{error}");
        assert!(marked.get_datetime("error_at").is_ok() && !marked.contains_key("lease_id"));
        assert_eq!(marked.get_i32("attempts").ok(), Some(1));
    }
    // A fixed document is sent.
    database.set("nan", doc! { "payload": 1, "status": "pending" }).await;
    assert_eq!(once(&database, &server, &["--token", "shop"]).lines()[0]["sent"], 1);
    assert!(!database.get("nan").await.contains_key("error"));
}

#[tokio::test]
async fn many_sizes_pass_a_server_that_limits_rate() {
    let limits = [
        "limits.enabled=true",
        "limits.connection.capacity=20",
        "limits.connection.refill_per_sec=500",
    ];
    let (database, server) = (Database::start().await, Server::start(&limits));
    let text = |n: i64| "x".repeat(if n % 40 == 0 { 900_000 } else { 10 });
    let documents = (0..200).map(|n| {
        let mut document = pending(&format!("{n:03}"), n, Some("k"));
        document.insert("payload", text(n));
        document
    });
    database.insert(documents).await;
    assert_eq!(once(&database, &server, &[]).lines()[0]["sent"], 200);
    // Export has its own rate limit, so the order is read from the documents.
    let mut seq = 0;
    for n in 0..200 {
        let sent = database.get(&format!("{n:03}")).await.get_i64("seq").unwrap();
        assert!(sent > seq, "{n} is at {sent}, behind {seq}");
        seq = sent;
    }
    assert_eq!(seq, 200);
}

#[tokio::test]
async fn a_retry_stores_once() {
    let (database, server) = (Database::start().await, Server::start(&[]));
    database.insert((0..20).map(|n| pending(&format!("{n:02}"), n, Some("k")))).await;
    assert_eq!(once(&database, &server, &[]).lines()[0]["sent"], 20);
    // As if the worker had died before it marked the later ones.
    let later = doc! { "_id": { "$gte": "10" } };
    let unmarked = doc! { "$set": { "status": "pending" }, "$unset": { "seq": "", "sent_at": "" } };
    database.outbox.update_many(later, unmarked).await.unwrap();
    let summary = json!({ "sent": 10, "duplicates": 10, "errors": 0, "taken_over": 0 });
    assert_eq!(once(&database, &server, &[]).lines(), [summary]);
    assert_eq!(ids(&server).len(), 20);
    assert_eq!(database.get("15").await.get_i64("seq").ok(), Some(16));
}
