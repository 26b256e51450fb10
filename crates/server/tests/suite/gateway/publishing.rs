//! AUTH and PUBLISH, and their exact answers.

use serde_json::json;

use crate::gateway::client::parsed;
use crate::gateway::running::started;

#[tokio::test]
async fn without_tokens_auth_is_optional_and_always_ok() {
    let running = started(&[]).await;
    let mut client = running.connect().await;
    client.assert_lives().await;
    for token in ["", "anything"] {
        let answer = client.ask(json!({"op": "AUTH", "token": token, "corr": "a"})).await;
        assert_eq!(answer, r#"{"op":"OK","corr":"a"}"#);
    }
}

#[tokio::test]
async fn one_event_is_answered_with_its_id_and_seq() {
    let running = started(&[]).await;
    let mut client = running.connect().await;
    let publish = json!({"op": "PUBLISH", "topic": "t", "payload": 1, "opts": {"id": "a"}});
    assert_eq!(client.ask(publish.clone()).await, r#"{"op":"OK","id":"a","seq":1}"#);
    assert_eq!(client.ask(publish).await, r#"{"op":"OK","id":"a","seq":1,"duplicate":true}"#);
    let corr =
        json!({"op": "PUBLISH", "corr": "ü\"", "topic": "t", "payload": null, "opts": {"id": "b"}});
    assert_eq!(client.ask(corr).await, r#"{"op":"OK","corr":"ü\"","id":"b","seq":2}"#);
    let generated = client.publish("t", json!({})).await;
    assert_eq!(generated["seq"], 3);
    assert_eq!(generated["id"].as_str().unwrap().len(), 36, "a UUID");
}

#[tokio::test]
async fn a_batch_is_stored_all_or_none_and_answered_with_results() {
    let running = started(&[]).await;
    let mut client = running.connect().await;
    let events = json!([
        {"payload": 1, "opts": {"id": "a"}},
        {"payload": 2, "opts": {"id": "b"}},
        {"payload": 3, "opts": {"id": "a"}},
    ]);
    let answer = client.ask(json!({"op": "PUBLISH", "corr": "m", "topic": "t", "events": events}));
    assert_eq!(
        answer.await,
        r#"{"op":"OK","corr":"m","results":[{"id":"a","seq":1},{"id":"b","seq":2},{"id":"a","seq":1,"duplicate":true}]}"#
    );
    let events = json!([{"payload": 4, "opts": {"id": "c"}}, {"opts": {}}]);
    let answer = client.ask(json!({"op": "PUBLISH", "corr": "n", "topic": "t", "events": events}));
    assert_eq!(
        answer.await,
        r#"{"op":"ERR","corr":"n","code":"bad_frame","msg":"events[1].payload is missing"}"#
    );
    assert_eq!(client.publish("t", json!(5)).await["seq"], 3, "no event of the batch was stored");
    let thousand: Vec<_> = (0..1000).map(|n| json!({"payload": n})).collect();
    let answer = client.ok(json!({"op": "PUBLISH", "topic": "t", "events": thousand})).await;
    assert_eq!(answer["results"].as_array().unwrap().len(), 1000);
    assert_eq!(answer["results"][999]["seq"], 1003);
    let too_many: Vec<_> = (0..1001).map(|n| json!({"payload": n})).collect();
    let answer = client.ask(json!({"op": "PUBLISH", "topic": "t", "events": too_many})).await;
    assert_eq!(parsed(&answer)["code"], "bad_frame", "{answer}");
}

#[tokio::test]
async fn an_event_with_all_options_is_delivered_as_published() {
    let running = started(&[]).await;
    let mut client = running.connect().await;
    client.subscribe("t", "g", json!({})).await;
    let publish = r#"{"op":"PUBLISH","topic":"t","payload":{"b": 1.50,"a":[]},"opts":{"id":"x","ts":7,"key":"k","headers":{"h":"v"},"tags":["t1"],"caused_by":["y"],"sid":"s"}}"#;
    client.send_text(publish).await;
    assert_eq!(client.answer().await, r#"{"op":"OK","id":"x","seq":1}"#);
    let crate::gateway::client::Received::Text(event) = client.receive().await else { panic!() };
    let (fixed, time_left) = event.split_once(r#","ack_deadline_ms":"#).unwrap();
    assert_eq!(
        fixed,
        r#"{"op":"EVENT","topic":"t","group":"g","event":{"seq":1,"id":"x","ts":7,"topic":"t","key":"k","headers":{"h":"v"},"payload":{"b": 1.50,"a":[]},"caused_by":["y"],"tags":["t1"],"sid":"s"},"ctx":{"attempt":1"#
    );
    let time_left: u64 = time_left.strip_suffix("}}").unwrap().parse().unwrap();
    assert!((1..=30_000).contains(&time_left), "{time_left}");
}

#[tokio::test]
async fn unknown_members_are_ignored() {
    let running = started(&[]).await;
    let mut client = running.connect().await;
    client
        .ok(json!({"op": "SUBSCRIBE", "topic": "t", "group": "g", "x": [1], "opts": {"y": {}}}))
        .await;
    client
        .ok(json!({"op": "PUBLISH", "topic": "t", "payload": 1, "x": {}, "opts": {"seq": 9}}))
        .await;
    let event = client.event().await;
    assert_eq!(event["event"]["seq"], 1);
    let ack = json!({"op": "ACK", "topic": "t", "group": "g", "id": event["event"]["id"], "z": 1});
    assert_eq!(client.ask(ack).await, r#"{"op":"OK"}"#);
}
