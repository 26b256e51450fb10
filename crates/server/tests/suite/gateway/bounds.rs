//! The memory of one connection is bounded, whatever its client does.

use std::time::Duration;

use futures_util::SinkExt;
use prombus_proto::Seq;
use serde_json::json;
use tokio::time::{sleep, timeout};
use tokio_tungstenite::tungstenite::Message;

use crate::gateway::client::{Client, payload};
use crate::gateway::running::{started, started_with_faults};

/// Sends `frame` repeatedly, and returns how many bytes the server accepts before it stops reading.
async fn accepted_bytes(client: &mut Client, frame: &str, max: usize) -> usize {
    let mut sent = 0;
    while sent < max {
        let sending = client.socket.send(Message::text(frame));
        match timeout(Duration::from_secs(1), sending).await {
            Ok(result) => result.unwrap(),
            Err(_) => break,
        }
        sent += frame.len();
    }
    sent
}

/// Reading stops first, then the connection is closed; a client that reads at last sees the close code.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_never_reads_its_answers_is_not_read_and_then_closed() {
    let set = ["gateway.slow_consumer_timeout_ms=2500", "gateway.max_outbox_bytes=65536"];
    let running = started(&set).await;
    let mut client = Client::connect_narrow(running.address()).await;
    let frame = json!({"op": "NOPE", "corr": "x".repeat(100)}).to_string();
    let sent = accepted_bytes(&mut client, &frame, 200 << 20).await;
    println!("{sent} bytes of frames were accepted before reading stopped");
    assert!(sent < 100 << 20, "reading never stopped");
    sleep(Duration::from_millis(2500)).await;
    assert_eq!(client.close_code().await, 4008);
}

/// One large event, after which nothing but the timeout wakes the session.
#[tokio::test]
async fn a_client_that_reads_only_a_part_is_closed_in_time() {
    let set = [
        "gateway.slow_consumer_timeout_ms=300",
        "gateway.ping_interval_ms=3600000",
        "gateway.max_frame_bytes=16777216",
    ];
    let running = started(&set).await;
    let mut client = Client::connect_narrow(running.address()).await;
    client.subscribe("t", "g", json!({})).await;
    running.connect().await.publish("t", json!("x".repeat(14 << 20))).await;
    sleep(Duration::from_millis(1500)).await;
    assert_eq!(client.close_code().await, 4008);
}

/// Frames wait for a storage that does not answer. Unknown members can make them large, so counting
/// frames is not enough.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unanswered_frames_are_bounded_in_bytes() {
    let (running, faults) = started_with_faults(&[]).await;
    let mut client = running.connect().await;
    client.subscribe("t", "g", json!({"maxInFlight": 1000})).await;
    let events: Vec<_> = (0..1000).map(|n| json!({"payload": n})).collect();
    client.ok(json!({"op": "PUBLISH", "topic": "t", "events": events})).await;
    let mut ids = Vec::new();
    for _ in 0..1000 {
        ids.push(client.event().await["event"]["id"].clone());
    }
    faults.shut_gate();
    let mut sent = 0;
    let mut acks = 0;
    for id in &ids {
        let frame = json!({
            "op": "ACK", "corr": "c", "topic": "t", "group": "g", "id": id,
            "padding": "x".repeat(900_000),
        })
        .to_string();
        let sending = client.socket.send(Message::text(frame.as_str()));
        if timeout(Duration::from_secs(1), sending).await.is_err() {
            break;
        }
        acks += 1;
        sent += frame.len();
        if sent > 200 << 20 {
            break;
        }
    }
    println!("{sent} bytes of frames were accepted before reading stopped");
    assert!(sent < 100 << 20, "reading never stopped");
    faults.open_gate();
    // The send that timed out completes, and all frames are answered.
    timeout(Duration::from_secs(20), client.socket.flush()).await.unwrap().unwrap();
    for _ in 0..acks {
        assert_eq!(client.answer().await, r#"{"op":"OK","corr":"c"}"#);
    }
}

/// The answers become ready when the client has stopped sending.
#[tokio::test]
async fn a_client_that_does_not_read_its_answers_is_closed_in_time() {
    let set = ["gateway.slow_consumer_timeout_ms=300", "gateway.ping_interval_ms=3600000"];
    let (running, faults) = started_with_faults(&set).await;
    let mut client = Client::connect_narrow(running.address()).await;
    faults.shut_gate();
    for frame in 0..60 {
        // Answers repeat the ids, which makes them large.
        let id = |n| format!("{frame}-{n}-{}", "x".repeat(240));
        let events: Vec<_> =
            (0..1000).map(|n| json!({"payload": 1, "opts": {"id": id(n)}})).collect();
        let frame = json!({"op": "PUBLISH", "topic": "t", "events": events}).to_string();
        let sending = client.socket.send(Message::text(frame));
        // The server stops reading when enough frames are unanswered.
        if timeout(Duration::from_millis(500), sending).await.is_err() {
            break;
        }
    }
    faults.until_waiting(1).await;
    faults.open_gate();
    let mut last = running.last_of("t").await;
    // Until everything is stored, and the timeout of the answers has passed.
    loop {
        sleep(Duration::from_millis(1500)).await;
        let before = std::mem::replace(&mut last, running.last_of("t").await);
        if before == last && last > Seq(0) {
            break;
        }
    }
    assert_eq!(client.close_code().await, 4008);
}

/// Events in the delivery queue of a client that does not read are not delivered: their leases may
/// expire there, but that does not count as an attempt.
#[tokio::test]
async fn an_event_that_was_never_sent_does_not_become_a_dead_letter() {
    let running = started(&["gateway.max_frame_bytes=16777216"]).await;
    let mut letters = running.connect().await;
    letters.subscribe("dlq.small", "undertaker", json!({})).await;
    let mut publisher = running.connect().await;
    let mut client = Client::connect_narrow(running.address()).await;
    client.subscribe("large", "g", json!({})).await;
    client.subscribe("small", "g", json!({"ackTimeoutMs": 150, "maxAttempts": 2})).await;
    // Larger than the socket buffers, so that everything after it waits.
    publisher.publish("large", json!("x".repeat(14 << 20))).await;
    sleep(Duration::from_millis(300)).await;
    for n in 0..10 {
        publisher.publish("small", json!(n)).await;
    }
    letters.gets_nothing_for(Duration::from_millis(1500)).await;
    // A client that reads at last gets them with attempt 1.
    assert_eq!(client.event().await["topic"], "large");
    let mut got = Vec::new();
    for _ in 0..10 {
        let event = client.event().await;
        assert_eq!(event["ctx"]["attempt"], 1);
        got.push(payload(&event).as_u64().unwrap());
        client.ack(&event).await;
    }
    // Expired ones may come after the others.
    got.sort_unstable();
    assert!(got.iter().copied().eq(0..10), "{got:?}");
}

/// The publisher of an event knows its id before it is delivered.
#[tokio::test]
async fn a_nack_of_an_unsent_event_does_not_affect_other_members() {
    // A large buffer, so that the client is still read.
    let set = ["gateway.max_frame_bytes=16777216", "gateway.max_outbox_bytes=67108864"];
    let running = started(&set).await;
    let mut other = running.connect().await;
    let mut client = Client::connect_narrow(running.address()).await;
    client.subscribe("large", "g", json!({})).await;
    client.subscribe("small", "g", json!({"maxInFlight": 1})).await;
    other.publish("large", json!("x".repeat(14 << 20))).await;
    sleep(Duration::from_millis(300)).await;
    let opts = json!({"id": "x"});
    other.ok(json!({"op": "PUBLISH", "topic": "small", "payload": 1, "opts": opts})).await;
    sleep(Duration::from_millis(100)).await;
    // It waits behind the large event, and is then redelivered to the member with more room.
    other.subscribe("small", "g", json!({"maxInFlight": 100})).await;
    let nack = json!({"op": "NACK", "topic": "small", "group": "g", "id": "x", "delay_ms": 0});
    client.send(&nack).await;
    let event = other.event().await;
    assert_eq!(event["ctx"]["attempt"], 2);
    client.send(&json!({"op": "PAUSE", "topic": "small", "group": "g"})).await;
    sleep(Duration::from_millis(200)).await;
    assert_eq!(other.ack(&event).await, json!({"op": "OK"}), "it still has the lease");
    client.answer().await;
    client.answer().await;
    client.assert_lives().await;
}
