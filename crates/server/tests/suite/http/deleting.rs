//! `DELETE /topics/{topic}` and `POST /topics/{topic}/purge`.

use serde_json::json;

use crate::gateway::running::started;
use crate::http::client::HttpClient;

#[tokio::test]
async fn a_deleted_topic_is_gone_and_its_subscriptions_end() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    let mut consumer = running.connect().await;
    consumer.subscribe("orders", "billing", json!({"from": "earliest"})).await;
    for _ in 0..3 {
        client.post("/publish/orders", "1").await.ok();
    }
    assert_eq!(consumer.event().await["event"]["seq"], 1);
    let deleted = client.ask("DELETE", "/topics/orders", &[], "").await.ok();
    assert_eq!(deleted, json!({"topic": "orders", "deleted": true}));
    let ended = loop {
        let frame = consumer.next_frame().await;
        if frame["op"] != "EVENT" {
            break frame;
        }
    };
    let expected =
        json!({"op": "ENDED", "topic": "orders", "group": "billing", "reason": "topic_deleted"});
    assert_eq!(ended, expected);
    let late = consumer.ask(json!({"op": "ACK", "topic": "orders", "group": "billing", "id": "x"}));
    assert!(late.await.contains("not_subscribed"));
    client.get("/topics/orders").await.refused(404, "unknown_topic");
    client.ask("DELETE", "/topics/orders", &[], "").await.refused(404, "unknown_topic");
    assert_eq!(client.get("/topics").await.ok(), json!({"topics": []}));
    // It can begin again.
    client.post("/publish/orders", "2").await.ok();
    consumer.subscribe("orders", "billing", json!({"from": "earliest"})).await;
    assert_eq!(consumer.event().await["event"]["payload"], 2);
    assert_eq!(client.get("/groups?topic=orders").await.ok()["groups"][0]["group"], "billing");
}

#[tokio::test]
async fn deleting_and_purging_need_the_right_to_manage() {
    let tokens = r#"auth.tokens=[{token="reader", scopes=["read:**", "publish:**", "consume:**"]}, {token="manager", scopes=["manage:orders"]}]"#;
    let running = started(&[tokens]).await;
    let mut reader = HttpClient::connect(&running).await.with_token("reader");
    let mut manager = HttpClient::connect(&running).await.with_token("manager");
    reader.post("/publish/orders", "1").await.ok();
    reader.post("/publish/other", "1").await.ok();
    reader.ask("DELETE", "/topics/orders", &[], "").await.refused(403, "forbidden");
    reader.post("/topics/orders/purge", r#"{"all":true}"#).await.refused(403, "forbidden");
    manager.ask("DELETE", "/topics/other", &[], "").await.refused(403, "forbidden");
    manager.post("/topics/orders/purge", r#"{"all":true}"#).await.ok();
    manager.ask("DELETE", "/topics/orders", &[], "").await.ok();
}

#[tokio::test]
async fn a_purge_takes_exactly_one_criterion() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    for ts in [100, 200, 300, 400] {
        client.post(&format!("/publish/orders?ts={ts}"), "1").await.ok();
    }
    for body in ["{}", r#"{"all":false}"#, r#"{"all":true,"before_seq":2}"#, r#"{"before":1}"#] {
        let message = client.post("/topics/orders/purge", body).await.refused(400, "bad_frame");
        assert!(message.contains("before_seq") || message.contains("all"), "{message}");
    }
    client.post("/topics/orders/purge", "{").await.refused(400, "bad_json");
    client.post("/topics/nobody/purge", r#"{"all":true}"#).await.refused(404, "unknown_topic");
    for (body, removed, first) in [
        (r#"{"before_seq":2}"#, 1, 2),
        (r#"{"before_ts":300}"#, 1, 3),
        (r#"{"before_ts":300}"#, 0, 3),
        (r#"{"all":true}"#, 2, 5),
    ] {
        let purged = client.post("/topics/orders/purge", body).await.ok();
        let expected = json!({"topic": "orders", "removed": removed, "first_seq": first});
        assert_eq!(purged, expected, "{body}");
    }
    let published = client.post("/publish/orders", "1").await.ok();
    assert_eq!(published["seq"], 5, "the numbering goes on");
}

#[tokio::test]
async fn dead_letters_are_retained_for_a_month_unless_told_otherwise() {
    let running = started(&[r#"topics."dlq.short.**".retention_ms=5"#]).await;
    let mut client = HttpClient::connect(&running).await;
    for (topic, retention) in [
        ("dlq.orders", json!(2_592_000_000_u64)),
        ("dlq.short.x", json!(5)),
        ("orders", json!(null)),
    ] {
        client.put(&format!("/topics/{topic}"), "{}").await.ok();
        let described = client.get(&format!("/topics/{topic}")).await.ok();
        assert_eq!(described["settings"]["retention_ms"], retention, "{topic}");
        assert_eq!(described["own"], json!({}));
    }
}
