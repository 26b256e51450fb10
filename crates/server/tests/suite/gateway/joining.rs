//! A SUBSCRIBE that is not answered yet, and what its connection does meanwhile.

use std::time::Duration;

use serde_json::{Value, json};

use crate::gateway::authorising::{SECRET, authenticated, token_with_seconds_left};
use crate::gateway::client::{Client, parsed, payload};
use crate::gateway::running::{started, started_with_faults};

fn subscribe(topic: &str, group: &str) -> Value {
    json!({"op": "SUBSCRIBE", "topic": topic, "group": group, "opts": {"from": "earliest"}})
}

fn membership(op: &str, topic: &str, group: &str) -> Value {
    json!({"op": op, "topic": topic, "group": group})
}

/// Publishes three events to `t`, and leaves a group `g` that starts with the first.
async fn prepare(client: &mut Client) {
    for number in 1..=3 {
        client.publish("t", json!(number)).await;
    }
    client.ok(subscribe("t", "g")).await;
    client.ok(membership("UNSUBSCRIBE", "t", "g")).await;
    forget_events(client).await;
}

/// Forgets the events that arrived before the last answer.
async fn forget_events(client: &mut Client) {
    while client.event_within(Duration::ZERO).await.is_some() {}
}

async fn assert_answers(client: &mut Client, ops: &[&str]) {
    for op in ops {
        assert_eq!(parsed(&client.answer().await)["op"], *op);
    }
}

#[tokio::test]
async fn other_subscriptions_go_on_while_a_group_is_created() {
    let (running, faults) = started_with_faults(&[]).await;
    let mut client = running.connect().await;
    prepare(&mut client).await;
    client.send_all([subscribe("t", "g"), membership("PAUSE", "t", "g")]).await;
    assert_answers(&mut client, &["OK", "OK"]).await;
    faults.shut_gate();
    client.send(&subscribe("t", "new")).await;
    faults.until_waiting(1).await;
    client.send(&membership("RESUME", "t", "g")).await;
    for number in 1..=3 {
        let event = client.next_frame().await;
        assert_eq!((&event["group"], payload(&event)), (&json!("g"), &json!(number)), "{event}");
    }
    faults.open_gate();
    assert_answers(&mut client, &["OK", "OK"]).await;
    assert_eq!(client.event().await["group"], "new");
}

/// The group exists, but an earlier frame is not answered.
#[tokio::test]
async fn no_event_precedes_the_ok_however_long_that_takes() {
    let (running, faults) = started_with_faults(&[]).await;
    let mut client = running.connect().await;
    prepare(&mut client).await;
    faults.shut_gate();
    let publish = json!({"op": "PUBLISH", "topic": "u", "payload": 1});
    let (pause, resume) = (membership("PAUSE", "t", "g"), membership("RESUME", "t", "g"));
    client.send_all([publish, subscribe("t", "g"), pause, resume]).await;
    faults.until_waiting(1).await;
    client.gets_nothing_for(Duration::from_millis(200)).await;
    faults.open_gate();
    for _ in 0..2 {
        assert_eq!(client.next_frame().await["op"], "OK");
    }
    assert_answers(&mut client, &["OK", "OK"]).await;
    assert_eq!(payload(&client.event().await), 1);
}

#[tokio::test]
async fn a_pause_that_follows_at_once_counts() {
    let running = started(&[]).await;
    let mut client = running.connect().await;
    prepare(&mut client).await;
    client.send_all([subscribe("t", "g"), membership("PAUSE", "t", "g")]).await;
    assert_answers(&mut client, &["OK", "OK"]).await;
    client.gets_nothing_for(Duration::from_millis(200)).await;
    client.ok(membership("RESUME", "t", "g")).await;
    assert_eq!(payload(&client.event().await), 1);
}

#[tokio::test]
async fn nothing_is_delivered_if_the_token_expires_before_the_answer() {
    let (running, faults) = started_with_faults(&[&format!("auth.jwt.secret={SECRET}")]).await;
    let mut publisher = authenticated(&running, &token_with_seconds_left(600)).await;
    publisher.publish("t", json!(1)).await;
    let mut client = authenticated(&running, &token_with_seconds_left(3)).await;
    faults.shut_gate();
    client.send(&subscribe("t", "g")).await;
    faults.until_waiting(1).await;
    tokio::time::sleep(Duration::from_millis(3100)).await;
    faults.open_gate();
    assert_answers(&mut client, &["OK"]).await;
    client.gets_nothing_for(Duration::from_millis(200)).await;
    client.ok(json!({"op": "AUTH", "token": token_with_seconds_left(600)})).await;
    assert_eq!(payload(&client.event().await), 1);
}

#[tokio::test]
async fn subscriptions_to_a_group_may_follow_each_other() {
    let running = started(&[]).await;
    let mut client = running.connect().await;
    prepare(&mut client).await;
    let unsubscribe = membership("UNSUBSCRIBE", "t", "g");
    for _ in 0..20 {
        let frames =
            [subscribe("t", "g"), unsubscribe.clone(), subscribe("t", "g"), subscribe("t", "g")];
        client.send_all(frames).await;
        assert_answers(&mut client, &["OK", "OK", "OK", "ERR"]).await;
        assert_eq!(payload(&client.event().await), 1, "the last one delivers");
        client.ok(unsubscribe.clone()).await;
        forget_events(&mut client).await;
    }
}

#[tokio::test]
async fn a_refused_subscribe_leaves_nothing_behind() {
    let running = started(&[]).await;
    let mut client = running.connect().await;
    prepare(&mut client).await;
    let mut made_up = subscribe("t", "new");
    made_up["opts"] = json!({"from": "afterId", "afterId": "made up"});
    for _ in 0..3 {
        let others = ["PAUSE", "RESUME", "UNSUBSCRIBE"].map(|op| membership(op, "t", "new"));
        client.send_all([made_up.clone()].into_iter().chain(others)).await;
        assert_eq!(parsed(&client.answer().await)["code"], "unknown_id");
        for _ in 0..3 {
            assert_eq!(parsed(&client.answer().await)["code"], "not_subscribed");
        }
        let ack = json!({"op": "ACK", "topic": "t", "group": "new", "id": "x"});
        assert_eq!(parsed(&client.ask(ack).await)["code"], "not_subscribed");
    }
    client.ok(subscribe("t", "new")).await;
    assert_eq!(payload(&client.event().await), 1);
}

fn latest(topic: &str) -> Value {
    json!({"op": "SUBSCRIBE", "topic": topic, "group": "g"})
}

/// Sends `frames` while their group cannot be read, and returns the payload of the first event. `prepare` are
/// the frames before them, which make the server deliver another event.
async fn first_event_after(frames: impl IntoIterator<Item = Value>, prepare: &[Value]) -> Value {
    let (running, faults) = started_with_faults(&[]).await;
    let mut client = running.connect().await;
    for frame in prepare {
        client.ok(frame.clone()).await;
    }
    if !prepare.is_empty() {
        client.event().await;
    }
    faults.shut_state_reads();
    let frames: Vec<_> = frames.into_iter().collect();
    let count = frames.len();
    client.send_all(frames).await;
    faults.until_state_reads_waiting(1).await;
    // What does not wait for the group is stored meanwhile.
    tokio::time::sleep(Duration::from_millis(100)).await;
    faults.open_state_reads();
    assert_answers(&mut client, &vec!["OK"; count]).await;
    client.event_within(Duration::from_secs(5)).await.expect("the event is lost")["event"]["payload"]
        .clone()
}

#[tokio::test]
async fn a_new_group_gets_what_its_client_publishes_after_the_subscribe() {
    let publish = json!({"op": "PUBLISH", "topic": "t", "payload": 1});
    assert_eq!(first_event_after([latest("t"), publish.clone()], &[]).await, 1);
    let other = json!({"op": "PUBLISH", "topic": "u", "payload": 2});
    assert_eq!(first_event_after([other, latest("t"), publish.clone()], &[]).await, 1);
    let events = json!([{"topic": "u", "payload": 2}, {"topic": "t", "payload": 1}]);
    let ack = json!({"op": "ACK", "topic": "s", "group": "g", "id": "e", "publish": events});
    let event = json!({"op": "PUBLISH", "topic": "s", "payload": 3, "opts": {"id": "e"}});
    let prepare = [latest("s"), event.clone()];
    assert_eq!(first_event_after([latest("t"), ack], &prepare).await, 1);
    let nack = json!({"op": "NACK", "topic": "s", "group": "g", "id": "e", "dead": true});
    let letter = first_event_after([latest("dlq.s"), nack], &prepare).await;
    assert_eq!(letter["original"]["id"], "e");
}

#[tokio::test]
async fn publishes_to_other_topics_do_not_wait_for_a_group() {
    let (running, faults) = started_with_faults(&[]).await;
    let mut client = running.connect().await;
    faults.shut_state_reads();
    let publish = json!({"op": "PUBLISH", "topic": "u", "payload": 1});
    client.send_all([latest("t"), publish]).await;
    faults.until_state_reads_waiting(1).await;
    while running.last_of("u").await.0 == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    faults.open_state_reads();
    assert_answers(&mut client, &["OK", "OK"]).await;
}

#[tokio::test]
async fn other_subscriptions_go_on_while_a_group_too_many_is_looked_up() {
    let set = ["limits.enabled=true", "limits.max_groups_per_topic=1"];
    let (running, faults) = started_with_faults(&set).await;
    let mut client = running.connect().await;
    prepare(&mut client).await;
    client.send_all([subscribe("t", "g"), membership("PAUSE", "t", "g")]).await;
    assert_answers(&mut client, &["OK", "OK"]).await;
    faults.shut_state_reads();
    client.send(&subscribe("t", "new")).await;
    faults.until_state_reads_waiting(1).await;
    client.send(&membership("RESUME", "t", "g")).await;
    for number in 1..=3 {
        assert_eq!(payload(&client.next_frame().await), number);
    }
    faults.open_state_reads();
    assert_eq!(parsed(&client.answer().await)["code"], "limit_exceeded");
    assert_answers(&mut client, &["OK"]).await;
}
