//! `GET /groups`, `/cursors` and `/lag`.

use serde_json::{Value, json};

use crate::gateway::running::started;
use crate::http::client::HttpClient;

/// Removes the fields that depend on the time.
fn without_times(mut list: Value) -> Value {
    for entry in list.as_array_mut().unwrap() {
        let entry = entry.as_object_mut().unwrap();
        for time in ["lag_ms", "created"] {
            assert!(entry.remove(time).is_none_or(|time| time.is_u64()));
        }
    }
    list
}

#[tokio::test]
async fn groups_cursors_and_lag_agree() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    let mut consumer = running.connect().await;
    consumer.subscribe("t", "billing", json!({"maxInFlight": 2})).await;
    let mut idle = running.connect().await;
    idle.subscribe("t", "audit", json!({})).await;
    idle.ok(json!({"op": "PAUSE", "topic": "t", "group": "audit"})).await;
    for n in 1..=5 {
        client.post(&format!("/publish/t?id=e{n}&ts={n}"), "1").await.ok();
    }
    let first = consumer.event().await;
    consumer.ack(&first).await;
    consumer.event().await;
    consumer.event().await;
    let groups = client.get("/groups?topic=t").await.ok();
    assert_eq!(groups["topic"], "t");
    assert_eq!(
        without_times(groups["groups"].clone()),
        json!([
            {"group": "audit", "members": 1, "in_flight": 0, "lag_events": 5},
            {"group": "billing", "members": 1, "in_flight": 2, "lag_events": 4},
        ])
    );
    // The time since the server stored the event, and not since 1970, which its publisher claims.
    let an_hour = 3_600_000;
    assert!(groups["groups"][0]["lag_ms"].as_u64().unwrap() < an_hour);
    let cursors = client.get("/cursors?topic=t").await.ok();
    assert_eq!(cursors["topic"], "t");
    assert!(cursors["cursors"][1]["created"].as_u64().unwrap() > 1_000_000_000_000);
    assert_eq!(
        without_times(cursors["cursors"].clone()),
        json!([
            {"group": "audit", "seq": 0, "last_id": null, "last_ts": null},
            {"group": "billing", "seq": 1, "last_id": "e1", "last_ts": 1},
        ])
    );
    let lag = client.get("/lag?topic=t&group=billing").await.ok();
    let ms = lag["ms"].as_u64().unwrap();
    assert!(ms < an_hour);
    assert_eq!(lag, json!({"topic": "t", "group": "billing", "events": 4, "ms": ms}));
    let message = client.get("/lag?topic=t&group=nobody").await.refused(404, "unknown_group");
    assert!(message.contains("nobody"), "{message}");
}

#[tokio::test]
async fn lists_a_group_before_the_first_event_of_its_topic() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    client.get("/groups?topic=early").await.refused(404, "unknown_topic");
    let mut consumer = running.connect().await;
    consumer.subscribe("early", "g", json!({})).await;
    assert_eq!(
        client.get("/groups?topic=early").await.ok()["groups"],
        json!([{"group": "g", "members": 1, "in_flight": 0, "lag_events": 0, "lag_ms": 0}])
    );
    let lag = client.get("/lag?topic=early&group=g").await.ok();
    assert_eq!(lag, json!({"topic": "early", "group": "g", "events": 0, "ms": 0}));
    assert_eq!(client.get("/cursors?topic=early").await.ok()["cursors"][0]["seq"], 0);
    let empty =
        json!({"topic": "early", "first_seq": null, "last_seq": null, "events": 0, "bytes": 0});
    assert_eq!(client.get("/topics").await.ok()["topics"], json!([empty]));
    assert_eq!(client.get("/topics/early").await.ok()["events"], 0);
    // The group outlives its members.
    consumer.ok(json!({"op": "UNSUBSCRIBE", "topic": "early", "group": "g"})).await;
    assert_eq!(client.get("/groups?topic=early").await.ok()["groups"][0]["members"], 0);
    client.get("/replay?topic=early").await.refused(404, "unknown_topic");
}

#[tokio::test]
async fn lists_a_group_without_lag_and_members() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    let mut consumer = running.connect().await;
    consumer.subscribe("t", "g", json!({})).await;
    client.post("/publish/t", "1").await.ok();
    let event = consumer.event().await;
    consumer.ack(&event).await;
    consumer.ok(json!({"op": "UNSUBSCRIBE", "topic": "t", "group": "g"})).await;
    assert_eq!(
        client.get("/groups?topic=t").await.ok()["groups"],
        json!([{"group": "g", "members": 0, "in_flight": 0, "lag_events": 0, "lag_ms": 0}])
    );
    client.post("/publish/u", "1").await.ok();
    assert_eq!(client.get("/groups?topic=u").await.ok(), json!({"topic": "u", "groups": []}));
    assert_eq!(client.get("/cursors?topic=u").await.ok(), json!({"topic": "u", "cursors": []}));
}
