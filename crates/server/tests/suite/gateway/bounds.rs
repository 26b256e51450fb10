//! What is kept for one connection has an end, whatever its client does.

use std::time::Duration;

use futures_util::SinkExt;
use prombus_proto::Seq;
use serde_json::json;
use tokio::time::{sleep, timeout};
use tokio_tungstenite::tungstenite::Message;

use crate::gateway::client::{Client, payload};
use crate::gateway::running::{started, started_with_faults};

/// How many bytes of `frame`s the server takes before it stops reading.
async fn taken(client: &mut Client, frame: &str, most: usize) -> usize {
    let mut sent = 0;
    while sent < most {
        let sending = client.socket.send(Message::text(frame));
        match timeout(Duration::from_secs(1), sending).await {
            Ok(result) => result.unwrap(),
            Err(_) => break,
        }
        sent += frame.len();
    }
    sent
}

/// Delivery stops, reading stops, then it is closed; and who reads at last is told why.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_and_never_reads_the_answers_is_read_no_more_and_then_closed() {
    let set = ["gateway.slow_consumer_timeout_ms=2500", "gateway.max_outbox_bytes=65536"];
    let running = started(&set).await;
    let mut client = Client::connect_narrow(running.address()).await;
    let frame = json!({"op": "NOPE", "corr": "x".repeat(100)}).to_string();
    let sent = taken(&mut client, &frame, 200 << 20).await;
    println!("{sent} bytes of frames were taken before reading stopped");
    assert!(sent < 100 << 20, "reading never stopped");
    sleep(Duration::from_millis(2500)).await;
    assert_eq!(client.close_code().await, 4008);
}

/// One large event, after which nothing happens that could remind the server of its time.
#[tokio::test]
async fn who_takes_only_a_part_of_what_waits_is_closed_in_time() {
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

/// Frames wait for a storage that does not answer. They may be large, for what is unknown in them
/// is ignored, so counting them is not enough.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_that_wait_for_the_storage_are_bounded_in_bytes() {
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
    println!("{sent} bytes of frames were taken before reading stopped");
    assert!(sent < 100 << 20, "reading never stopped");
    faults.open_gate();
    // The one that was cut off above goes on by itself, and all are answered.
    timeout(Duration::from_secs(20), client.socket.flush()).await.unwrap().unwrap();
    for _ in 0..acks {
        assert_eq!(client.answer().await, r#"{"op":"OK","corr":"c"}"#);
    }
}

/// The answers become ready by themselves, when the client has said all it had to say.
#[tokio::test]
async fn who_does_not_take_its_answers_is_closed_in_time() {
    let set = ["gateway.slow_consumer_timeout_ms=300", "gateway.ping_interval_ms=3600000"];
    let (running, faults) = started_with_faults(&set).await;
    let mut client = Client::connect_narrow(running.address()).await;
    faults.shut_gate();
    for frame in 0..60 {
        // Ids are repeated in the answer, which makes that as large as the question.
        let id = |n| format!("{frame}-{n}-{}", "x".repeat(240));
        let events: Vec<_> =
            (0..1000).map(|n| json!({"payload": 1, "opts": {"id": id(n)}})).collect();
        let frame = json!({"op": "PUBLISH", "topic": "t", "events": events}).to_string();
        let sending = client.socket.send(Message::text(frame));
        // It stops reading when enough waits.
        if timeout(Duration::from_millis(500), sending).await.is_err() {
            break;
        }
    }
    faults.until_waiting(1).await;
    faults.open_gate();
    let mut last = running.last_of("t").await;
    // Until all is stored, however long that takes, and answered for longer than it may.
    loop {
        sleep(Duration::from_millis(1500)).await;
        let before = std::mem::replace(&mut last, running.last_of("t").await);
        if before == last && last > Seq(0) {
            break;
        }
    }
    assert_eq!(client.close_code().await, 4008);
}

/// What waits in the delivery_queue of a client that does not read has not been delivered: its time may
/// run out there, but not its attempts.
#[tokio::test]
async fn what_never_left_the_server_does_not_die() {
    let running = started(&["gateway.max_frame_bytes=16777216"]).await;
    let mut letters = running.connect().await;
    letters.subscribe("dlq.small", "undertaker", json!({})).await;
    let mut publisher = running.connect().await;
    let mut client = Client::connect_narrow(running.address()).await;
    client.subscribe("large", "g", json!({})).await;
    client.subscribe("small", "g", json!({"ackTimeoutMs": 150, "maxAttempts": 2})).await;
    // More than the sockets take, so that all behind it waits.
    publisher.publish("large", json!("x".repeat(14 << 20))).await;
    sleep(Duration::from_millis(300)).await;
    for n in 0..10 {
        publisher.publish("small", json!(n)).await;
    }
    letters.gets_nothing_for(Duration::from_millis(1500)).await;
    // Others may have them meanwhile; and who reads at last gets them, for the first time.
    assert_eq!(client.event().await["topic"], "large");
    let mut got = Vec::new();
    for _ in 0..10 {
        let event = client.event().await;
        assert_eq!(event["ctx"]["attempt"], 1);
        got.push(payload(&event).as_u64().unwrap());
        client.ack(&event).await;
    }
    // Those whose time ran out went behind the others, if the store was slow to take these.
    got.sort_unstable();
    assert!(got.iter().copied().eq(0..10), "{got:?}");
}

/// Whoever published an event knows its id, also before it is delivered.
#[tokio::test]
async fn who_nacks_what_it_has_not_seen_takes_nothing_from_others() {
    // With room for what waits, so that it is still read.
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
    // It waits behind the large one, and then goes to who has more room.
    other.subscribe("small", "g", json!({"maxInFlight": 100})).await;
    let nack = json!({"op": "NACK", "topic": "small", "group": "g", "id": "x", "delay_ms": 0});
    client.send(&nack).await;
    let event = other.event().await;
    assert_eq!(event["ctx"]["attempt"], 2);
    client.send(&json!({"op": "PAUSE", "topic": "small", "group": "g"})).await;
    sleep(Duration::from_millis(200)).await;
    assert_eq!(other.ack(&event).await, json!({"op": "OK"}), "its lease is still its own");
    client.answer().await;
    client.answer().await;
    client.assert_lives().await;
}
