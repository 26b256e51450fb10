//! Answers arrive in frame order.

use serde_json::{Value, json};

use crate::gateway::client::parsed;
use crate::gateway::running::{started, started_over};
use crate::store::Store;

/// Returns the nth frame of a mix of all operations, valid and not, and the shape of its answer.
fn mixed(n: usize) -> (Value, &'static str) {
    let (frame, shape) = match n % 12 {
        0..=2 => (json!({"op": "PUBLISH", "topic": "t", "payload": n}), "seq"),
        3 => (json!({"op": "PUBLISH", "topic": "u", "events": [{"payload": n}]}), "results"),
        4 => (json!({"op": "PUBLISH", "topic": "No", "payload": n}), "bad_topic"),
        5 => (json!({"op": "SUBSCRIBE", "topic": "t", "group": format!("g{n}")}), "OK"),
        6 => (json!({"op": "NOPE"}), "unknown_op"),
        7 => {
            let group = format!("g{}", n - 2);
            (json!({"op": "ACK", "topic": "t", "group": group, "id": "x"}), "stale")
        }
        8 => (json!({"op": "ACK", "topic": "t", "group": "none", "id": "x"}), "not_subscribed"),
        9 => {
            let group = format!("g{}", n - 4);
            (json!({"op": "NACK", "topic": "t", "group": group, "id": "x"}), "stale")
        }
        10 => (json!({"op": "AUTH", "token": ""}), "OK"),
        _ => (json!({"op": "UNSUBSCRIBE", "topic": "t", "group": format!("g{}", n - 6)}), "OK"),
    };
    let mut frame = frame;
    frame["corr"] = json!(n.to_string());
    (frame, shape)
}

fn shape_of(answer: &Value) -> &str {
    if answer["op"] == "ERR" {
        return answer["code"].as_str().unwrap();
    }
    ["seq", "results", "stale"].into_iter().find(|name| !answer[*name].is_null()).unwrap_or("OK")
}

#[tokio::test]
async fn a_thousand_pipelined_frames_are_answered_in_order() {
    let store = Store::new();
    for running in [started(&[]).await, started_over(store.open().await, &[]).await] {
        let mut client = running.connect().await;
        client.send_all((0..1000).map(|n| mixed(n).0)).await;
        for n in 0..1000 {
            let answer = parsed(&client.answer().await);
            assert_eq!(answer["corr"], n.to_string(), "{answer}");
            assert_eq!(shape_of(&answer), mixed(n).1, "{answer} answers {}", mixed(n).0);
        }
        drop(client);
        running.server.stop().await.unwrap();
    }
}

#[tokio::test]
async fn pipelined_publishes_are_stored_in_order() {
    let running = started(&[]).await;
    let mut client = running.connect().await;
    client.send_all((0..5000).map(|n| json!({"op": "PUBLISH", "topic": "t", "payload": n}))).await;
    for seq in 1..=5000 {
        assert_eq!(parsed(&client.answer().await)["seq"], seq);
    }
}

#[tokio::test]
async fn no_event_precedes_the_ok_of_its_subscribe() {
    let running = started(&[]).await;
    let mut client = running.connect().await;
    client.publish("t", json!(0)).await;
    for round in 0..20 {
        let group = format!("g{round}");
        let opts = json!({"from": "earliest"});
        client
            .send_all([
                json!({"op": "PUBLISH", "topic": "u", "payload": 1}),
                json!({"op": "SUBSCRIBE", "corr": "s", "topic": "t", "group": group, "opts": opts}),
            ])
            .await;
        for expected in
            [r#"{"op":"OK","id""#, r#"{"op":"OK","corr":"s","group""#, r#"{"op":"EVENT""#]
        {
            let received = client.receive().await;
            let crate::gateway::client::Received::Text(text) = received else {
                panic!("{received:?}")
            };
            assert!(text.starts_with(expected), "{text} instead of {expected}");
        }
    }
}
