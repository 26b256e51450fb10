//! SUBSCRIBE with all of its options, and UNSUBSCRIBE.

use std::time::Duration;

use prombus_proto::{Clock, SystemClock};
use serde_json::{Value, json};

use crate::gateway::client::{Client, payload};
use crate::gateway::running::{Running, started};

/// Starts a server with a topic `t` of four events: payloads 1 to 4, ids `e1` to `e4`, times 10 to 40.
async fn with_four_events() -> (Running, Client) {
    let running = started(&[]).await;
    let mut client = running.connect().await;
    for n in 1..=4 {
        let opts = json!({"id": format!("e{n}"), "ts": n * 10});
        client.ok(json!({"op": "PUBLISH", "topic": "t", "payload": n, "opts": opts})).await;
    }
    (running, client)
}

async fn first_payload(running: &Running, group: &str, opts: Value) -> Value {
    let mut client = running.connect().await;
    client.subscribe("t", group, opts).await;
    payload(&client.event().await).clone()
}

#[tokio::test]
async fn a_new_group_starts_at_from() {
    let (running, mut publisher) = with_four_events().await;
    for (group, opts, first) in [
        ("earliest", json!({"from": "earliest"}), 1),
        ("ts", json!({"from": "ts", "ts": 30}), 3),
        ("between", json!({"from": "ts", "ts": 11}), 2),
        ("after", json!({"from": "afterId", "afterId": "e3"}), 4),
    ] {
        assert_eq!(first_payload(&running, group, opts).await, first, "{group}");
    }
    for (group, opts) in [
        ("last", json!({"from": "afterId", "afterId": "e4"})),
        ("default", json!({})),
        ("latest", json!({"from": "latest"})),
        ("future", json!({"from": "ts", "ts": SystemClock.now().0 + 60_000})),
    ] {
        let mut client = running.connect().await;
        client.subscribe("t", group, opts).await;
        client.gets_nothing_for(Duration::from_millis(50)).await;
        let new = publisher.publish("t", json!("new")).await;
        let event = client.event().await;
        assert_eq!(event["event"]["id"], new["id"], "{group}");
        assert_eq!(event["group"], group);
    }
}

#[tokio::test]
async fn an_existing_group_continues_at_its_cursor() {
    let (running, _publisher) = with_four_events().await;
    let mut client = running.connect().await;
    client.subscribe("t", "g", json!({"from": "earliest", "maxInFlight": 1})).await;
    let event = client.event().await;
    client.ack(&event).await;
    assert_eq!(payload(&client.event().await), 2);
    drop(client);
    let mut client = running.connect().await;
    client.subscribe("t", "g", json!({"from": "latest", "maxInFlight": 1})).await;
    let event = client.event().await;
    assert_eq!((payload(&event), &event["ctx"]["attempt"]), (&json!(2), &json!(2)));
}

#[tokio::test]
async fn max_in_flight_limits_the_leases() {
    let (running, _publisher) = with_four_events().await;
    let mut client = running.connect().await;
    client.subscribe("t", "g", json!({"from": "earliest", "maxInFlight": 2})).await;
    let first = client.event().await;
    client.event().await;
    client.gets_nothing_for(Duration::from_millis(100)).await;
    client.ack(&first).await;
    assert_eq!(payload(&client.event().await), 3);
    client.gets_nothing_for(Duration::from_millis(100)).await;
}

#[tokio::test]
async fn a_lease_expires_after_ack_timeout_and_becomes_a_dead_letter_after_max_attempts() {
    let (running, mut letters) = with_four_events().await;
    letters.subscribe("dlq.t", "undertaker", json!({})).await;
    let mut client = running.connect().await;
    let opts = json!({"from": "afterId", "afterId": "e3", "ackTimeoutMs": 150, "maxAttempts": 2});
    client.subscribe("t", "g", opts).await;
    for attempt in 1..=2 {
        let event = client.event().await;
        assert_eq!((payload(&event), &event["ctx"]["attempt"]), (&json!(4), &json!(attempt)));
        assert!(event["ctx"]["ack_deadline_ms"].as_u64().unwrap() <= 150, "{event}");
    }
    let mut letter = letters.event().await;
    let failed_at = payload(&letter)["ts"].as_u64().unwrap();
    assert!(failed_at > 1_600_000_000_000);
    letter["event"]["payload"]["ts"] = json!(0);
    assert_eq!(
        payload(&letter),
        &json!({
            "topic": "t",
            "group": "g",
            "original": {"seq": 4, "id": "e4", "ts": 40, "topic": "t", "payload": 4},
            "err": "not acknowledged before its deadline",
            "ts": 0,
            "attempts": 2,
        })
    );
    assert_eq!(letter["event"]["caused_by"], json!(["e4"]));
    client.gets_nothing_for(Duration::from_millis(300)).await;
}

#[tokio::test]
async fn unsubscribe_stops_deliveries_and_releases_the_leases() {
    let (running, mut other) = with_four_events().await;
    let mut client = running.connect().await;
    client.subscribe("t", "g", json!({"from": "earliest", "maxInFlight": 2})).await;
    let first = client.event().await;
    client.event().await;
    let which = json!({"op": "UNSUBSCRIBE", "corr": "u", "topic": "t", "group": "g"});
    assert_eq!(client.ask(which).await, r#"{"op":"OK","corr":"u"}"#);
    other.subscribe("t", "g", json!({})).await;
    for (n, attempt) in [(1, 2), (2, 2), (3, 1), (4, 1)] {
        let event = other.event().await;
        assert_eq!((payload(&event), &event["ctx"]["attempt"]), (&json!(n), &json!(attempt)));
    }
    client.gets_nothing_for(Duration::from_millis(100)).await;
    let ack = client.ask(crate::gateway::client::frame_for("ACK", &first)).await;
    assert!(ack.contains(r#""code":"not_subscribed""#), "{ack}");
    // It may subscribe again.
    client.subscribe("t", "g", json!({})).await;
    other.publish("t", json!(5)).await;
    let (a, b) = (
        client.event_within(Duration::from_secs(2)),
        other.event_within(Duration::from_millis(500)),
    );
    let (a, b) = tokio::join!(a, b);
    assert_eq!(a.iter().chain(&b).count(), 1, "one of the two has it");
}

#[tokio::test]
async fn max_subscriptions_limits_a_connection() {
    let running = started(&["gateway.max_subscriptions=2"]).await;
    let mut client = running.connect().await;
    for group in ["a", "b"] {
        client.subscribe("t", group, json!({})).await;
    }
    let third = json!({"op": "SUBSCRIBE", "topic": "t", "group": "c"});
    assert_eq!(
        client.ask(third.clone()).await,
        r#"{"op":"ERR","code":"bad_frame","msg":"a connection has at most 2 subscriptions"}"#
    );
    client.ok(json!({"op": "UNSUBSCRIBE", "topic": "t", "group": "a"})).await;
    client.ok(third).await;
    // Each group gets every event.
    client.publish("t", json!(1)).await;
    let mut groups = [client.event().await, client.event().await].map(|e| e["group"].to_string());
    groups.sort();
    assert_eq!(groups, [r#""b""#, r#""c""#]);
}

#[tokio::test]
async fn every_subscribe_is_answered_with_the_properties_of_the_group() {
    let running = started(&["subscribe.max_attempts=4"]).await;
    let subscribe =
        |opts: Value| json!({"op": "SUBSCRIBE", "topic": "t", "group": "g", "opts": opts});
    let answer = |max_attempts: u32, created: bool| {
        format!(
            r#"{{"op":"OK","group":{{"ordering":"none","partitions":1,"max_attempts":{max_attempts},"created":{created}}}}}"#
        )
    };
    for (opts, expected) in [
        (json!({}), answer(4, true)),
        (json!({"maxAttempts": 9}), answer(9, false)),
        (json!({}), answer(9, false)),
        (json!({"maxAttempts": 2}), answer(2, false)),
    ] {
        let mut client = running.connect().await;
        assert_eq!(client.ask(subscribe(opts)).await, expected);
    }
}
