//! `GET /topics`.

use serde_json::json;

use crate::gateway::running::started;
use crate::http::client::HttpClient;

#[tokio::test]
async fn lists_topics_published_to_or_configured() {
    let running = started(&[r#"topics."of.the.file".retention_ms=1000"#]).await;
    let mut client = HttpClient::connect(&running).await;
    let listed = client.get("/topics").await.ok();
    let empty = |topic| json!({"topic": topic, "first_seq": null, "last_seq": null, "events": 0, "bytes": 0});
    assert_eq!(listed, json!({"topics": [empty("of.the.file")]}));
    for _ in 0..3 {
        client.post("/publish/orders", "1").await.ok();
    }
    client.put("/topics/a.put", "{}").await.ok();
    let listed = client.get("/topics").await.ok();
    let topics = listed["topics"].as_array().unwrap();
    assert_eq!(topics[..2], [empty("a.put"), empty("of.the.file")]);
    let orders = topics[2].clone();
    let bytes = orders["bytes"].as_u64().unwrap();
    assert!(bytes > 100, "{orders}");
    let expected = json!({
        "topic": "orders", "first_seq": 1, "last_seq": 3, "events": 3, "bytes": bytes,
    });
    assert_eq!(orders, expected);
    let mut whole = client.get("/topics/orders").await.ok();
    let settings = json!({
        "durability": "fsync", "retention_ms": null, "retention_bytes": null, "limit": null,
    });
    assert_eq!(whole.as_object_mut().unwrap().remove("settings"), Some(settings));
    assert_eq!(whole.as_object_mut().unwrap().remove("own"), Some(json!({})));
    assert_eq!(whole, expected);
    let head = client.ask("HEAD", "/topics/orders", &[], "").await;
    assert_eq!((head.status.as_u16(), head.body.len()), (200, 0));
}

#[tokio::test]
async fn reading_an_unknown_topic_fails_and_does_not_create_it() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    for path in [
        "/topics/t",
        "/groups?topic=t",
        "/cursors?topic=t",
        "/lag?topic=t&group=g",
        "/latest-by-key?topic=t&key=k",
    ] {
        let message = client.get(path).await.refused(404, "unknown_topic");
        assert!(message.contains('t'), "{path}: {message}");
    }
    assert_eq!(client.get("/topics").await.ok(), json!({"topics": []}), "reading creates no topic");
}

#[tokio::test]
async fn checks_parameters_on_every_path() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    client.post("/publish/t", "1").await.ok();
    for (path, code, reason) in [
        ("/topics?topic=t", "bad_frame", "unknown parameter \"topic\"; this path takes none"),
        ("/topics/t?x", "bad_frame", "unknown parameter \"x\"; this path takes none"),
        ("/topics/T", "bad_topic", "the topic in the path"),
        ("/groups", "bad_frame", "the parameter topic is missing"),
        ("/groups?topic=T", "bad_topic", "the parameter topic is invalid"),
        ("/groups?topic=t&group=g", "bad_frame", "unknown parameter \"group\"; expected topic"),
        ("/cursors", "bad_frame", "the parameter topic is missing"),
        ("/cursors?topic=t&topic=t", "bad_frame", "the parameter topic is given more than once"),
        ("/lag?topic=t", "bad_frame", "the parameter group is missing"),
        ("/lag?group=g", "bad_frame", "the parameter topic is missing"),
        ("/lag?topic=t&group=G", "bad_group", "the parameter group is invalid"),
        ("/latest-by-key?topic=t", "bad_frame", "the parameter key is missing"),
        ("/latest-by-key?topic=t&key=", "bad_frame", "the parameter key is invalid"),
        ("/latest-by-key?key=k", "bad_frame", "the parameter topic is missing"),
        ("/latest-by-key?topic=%ff&key=k", "bad_frame", "the parameter topic is not"),
    ] {
        let message = client.get(path).await.refused(400, code);
        assert!(message.contains(reason), "{path}: {message}");
    }
}
