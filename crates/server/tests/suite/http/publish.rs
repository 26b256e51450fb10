//! `POST /publish/{topic}` with one event.

use serde_json::json;

use crate::gateway::running::started;
use crate::http::client::HttpClient;

#[tokio::test]
async fn stores_payload_parameters_and_headers() {
    let running = started(&[]).await;
    let mut subscriber = running.connect().await;
    subscriber.subscribe("orders.created", "g", json!({})).await;
    let mut client = HttpClient::connect(&running).await;
    let stored = client
        .ask(
            "POST",
            "/publish/orders.created?key=a%20b&id=first&ts=12345",
            &[
                ("X-Event-Trace", "abc"),
                ("x-event-Umlaut", "ä"),
                ("Content-Type", "application/x-www-form-urlencoded"),
            ],
            " {\"b\":1.50,\n\"a\":1}\n",
        )
        .await;
    assert_eq!(stored.ok(), json!({"id": "first", "seq": 1}));
    let event = subscriber.event().await["event"].clone();
    assert_eq!(
        event,
        json!({
            "id": "first", "seq": 1, "ts": 12345, "topic": "orders.created", "key": "a b",
            "headers": {"trace": "abc", "umlaut": "ä"}, "payload": {"b": 1.50, "a": 1},
        })
    );
}

/// The same on every way to publish, WebSocket frames included.
#[tokio::test]
async fn a_time_more_than_a_day_ahead_is_refused() {
    const AHEAD: u64 = 99_999_999_999_999;
    let running = started(&[]).await;
    let mut client = running.connect().await;
    client.subscribe("t", "g", json!({})).await;
    client.ok(json!({"op": "PUBLISH", "topic": "t", "payload": 1, "opts": {"id": "a"}})).await;
    client.event().await;
    let late = json!({"topic": "t", "payload": 2, "opts": {"ts": AHEAD}});
    let frames = [
        json!({"op": "PUBLISH", "topic": "t", "payload": 2, "opts": {"ts": AHEAD}}),
        json!({"op": "PUBLISH", "topic": "t", "events": [{"payload": 1}, late]}),
        json!({"op": "ACK", "topic": "t", "group": "g", "id": "a", "publish": [late]}),
    ];
    for frame in frames {
        let answer: serde_json::Value = serde_json::from_str(&client.ask(frame).await).unwrap();
        assert_eq!(answer["code"], "bad_frame", "{answer}");
        let message = answer["msg"].as_str().unwrap();
        assert!(message.contains("ts 99999999999999 is more than a day ahead"), "{message}");
    }
    let mut http = HttpClient::connect(&running).await;
    let single = http.ask("POST", &format!("/publish/t?ts={AHEAD}"), &[], "1").await;
    let message = single.refused(400, "bad_frame");
    assert!(message.starts_with("ts 99999999999999 is more than a day ahead"), "{message}");
    let lines = format!("{{\"payload\":1}}\n{{\"payload\":1,\"ts\":{AHEAD}}}\n");
    let many = http.ndjson("/publish/t", lines).await;
    let message = many.refused(400, "bad_frame");
    assert!(message.starts_with("line 2: ts 99999999999999 is more than a day"), "{message}");
    assert_eq!(http.get("/topics/t").await.ok()["events"], 1);
}

#[tokio::test]
async fn detects_duplicates_and_accepts_any_json() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    assert_eq!(client.post("/publish/t?id=a", "null").await.ok(), json!({"id": "a", "seq": 1}));
    let again = client.post("/publish/t?id=a", "2").await;
    assert_eq!(again.ok(), json!({"id": "a", "seq": 1, "duplicate": true}));
    for (n, payload) in ["0", "\"x\"", "[]", "true"].into_iter().enumerate() {
        let stored = client.post("/publish/t", payload).await.ok();
        assert_eq!(stored["seq"], n + 2);
        assert_eq!(stored["id"].as_str().unwrap().len(), 36);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_clients_get_distinct_seqs() {
    let running = started(&[]).await;
    let publishing = |name: &'static str| {
        let address = running.server.http();
        tokio::spawn(async move {
            let mut client = HttpClient::connect_to(address).await;
            let mut seqs = Vec::new();
            for n in 0..200 {
                let path = format!("/publish/t?id={name}-{n}");
                seqs.push(client.post(&path, n.to_string()).await.ok()["seq"].as_u64().unwrap());
            }
            seqs
        })
    };
    let (one, other) = (publishing("a"), publishing("b"));
    let (one, other) = (one.await.unwrap(), other.await.unwrap());
    assert!(one.is_sorted() && other.is_sorted());
    let mut all = [one, other].concat();
    all.sort_unstable();
    assert_eq!(all, (1..=400).collect::<Vec<_>>());
}
