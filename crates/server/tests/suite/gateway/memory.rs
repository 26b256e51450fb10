//! The buffers of all connections share budgets, and a stranger gets little.

use std::time::Duration;

use futures_util::SinkExt;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::time::{sleep, timeout};
use tokio_tungstenite::tungstenite::Message;

use crate::gateway::client::{Client, parsed};
use crate::gateway::running::{Running, started};

const MIB: usize = 1 << 20;
/// What every connection may have.
const MINIMUM: usize = 16 << 10;
const TOKEN: &str = r#"auth.tokens=[{token="all",scopes=["publish:**","subscribe:**"]}]"#;

/// Returns the bytes in buffers of `kind`, and how often one got no room.
pub(crate) async fn buffers(running: &Running, kind: &str) -> (usize, usize) {
    let text = running.server.bus().metrics_text().await.unwrap();
    let value = |metric: &str| {
        let series = format!("{metric}{{kind=\"{kind}\"}} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&series));
        line.expect("the metric exists").parse().unwrap()
    };
    (value("prombus_buffer_bytes"), value("prombus_buffer_refusals_total"))
}

/// Waits until `reached` is true of the buffers of `kind`.
pub(crate) async fn until(running: &Running, kind: &str, reached: impl Fn(usize, usize) -> bool) {
    let mut last = (0, 0);
    for _ in 0..12_000 {
        last = buffers(running, kind).await;
        if reached(last.0, last.1) {
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("{kind}: {last:?}");
}

/// The header of a masked text frame, with a mask of zeros.
fn header(bytes: usize) -> Vec<u8> {
    let mut header = vec![0x81, 0x80 | 127];
    header.extend((bytes as u64).to_be_bytes());
    header.extend([0; 4]);
    header
}

async fn write_raw(client: &mut Client, bytes: &[u8]) {
    client.socket.get_mut().write_all(bytes).await.unwrap();
}

/// An AUTH frame with this many bytes.
fn auth(bytes: usize) -> String {
    let frame = |token: &str| json!({"op": "AUTH", "token": token}).to_string();
    frame(&"x".repeat(bytes - frame("").len()))
}

#[tokio::test]
async fn a_large_frame_before_auth_is_refused_by_its_header() {
    let running = started(&[TOKEN]).await;
    let mut client = running.connect().await;
    assert_eq!(parsed(&client.ask(parsed(&auth(8192))).await)["code"], "bad_token");
    write_raw(&mut client, &header(8193)).await;
    let refused = parsed(&client.answer().await);
    assert_eq!(refused["code"], "payload_too_large");
    assert!(refused["msg"].as_str().unwrap().contains("8192"), "names the limit: {refused}");
    assert_eq!(client.close_code().await, 1009);
}

#[tokio::test]
async fn fragments_before_auth_count_together() {
    let running = started(&[TOKEN]).await;
    let mut client = running.connect().await;
    let text = auth(9000);
    // Final bit unset, then a continuation: neither of them is too large.
    for (first, part) in [(0x01, &text[..5000]), (0x80, &text[5000..])] {
        let mut frame = header(part.len());
        frame[0] = first;
        frame.extend(part.as_bytes());
        write_raw(&mut client, &frame).await;
    }
    assert_eq!(parsed(&client.answer().await)["code"], "payload_too_large");
    assert_eq!(client.close_code().await, 1009);
}

#[tokio::test]
async fn large_frames_are_allowed_from_auth_on() {
    let running = started(&[TOKEN]).await;
    let mut client = running.connect().await;
    let large = |op| json!({"op": op, "topic": "t", "payload": "x".repeat(900_000)});
    // In one write: the server reads both before it has served the first.
    client.send_all([json!({"op": "AUTH", "token": "all"}), large("PUBLISH")]).await;
    for _ in 0..2 {
        assert_eq!(parsed(&client.answer().await)["op"], "OK");
    }
    let open = started(&[]).await;
    open.connect().await.ok(large("PUBLISH")).await;
}

/// Each of 40 clients sends most of a large frame and stops.
#[tokio::test]
async fn unfinished_frames_share_a_budget() {
    const CLIENTS: usize = 40;
    let running = started(&["memory.frames_bytes=4194304"]).await;
    let mut stuck = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = running.connect().await;
        let mut frame = header(900_000);
        frame.resize(600_000, b'x');
        // What the server does not read may not fit into the buffers of the sockets.
        let _ = timeout(Duration::from_millis(100), write_raw(&mut client, &frame)).await;
        stuck.push(client);
        let (bytes, _) = buffers(&running, "frames").await;
        assert!(bytes <= 4 * MIB + CLIENTS * MINIMUM, "{bytes}");
    }
    until(&running, "frames", |_, refusals| refusals > 0).await;
    // Others publish small events meanwhile.
    let mut client = running.connect().await;
    client.publish("t", json!("x".repeat(5000))).await;
    // Connections that wait for room notice only when their time is up that their clients have left.
    drop(stuck);
    until(&running, "frames", |bytes, _| bytes == 0).await;
    let large = json!({"op": "PUBLISH", "topic": "t", "payload": "x".repeat(400_000)});
    client.ok(large).await;
}

/// Each of 60 clients subscribes to more than a megabyte and never reads.
#[tokio::test]
async fn unread_deliveries_share_a_budget() {
    const CLIENTS: usize = 60;
    const EVENT: usize = 4000;
    const EVENTS: usize = 1500;
    let running = started(&["memory.deliveries_bytes=1048576"]).await;
    let mut publisher = running.connect().await;
    for _ in 0..EVENTS / 100 {
        let events: Vec<_> = (0..100).map(|_| json!({"payload": "x".repeat(EVENT)})).collect();
        publisher.ok(json!({"op": "PUBLISH", "topic": "t", "events": events})).await;
    }
    let opts = json!({"from": "earliest", "maxInFlight": 10_000});
    let subscribe = |group: String| -> Value {
        json!({"op": "SUBSCRIBE", "topic": "t", "group": group, "opts": opts})
    };
    let mut stuck = Vec::new();
    for number in 0..CLIENTS {
        let mut client = Client::connect_narrow(running.address()).await;
        client.send(&subscribe(format!("stuck-{number}"))).await;
        stuck.push(client);
        let (bytes, _) = buffers(&running, "deliveries").await;
        // The queue and the write buffer of each, and the events that do not fit entirely, with overhead.
        assert!(bytes <= MIB + CLIENTS * (2 * MINIMUM + 8 * (EVENT + 500)), "{bytes}");
    }
    until(&running, "deliveries", |_, refusals| refusals > 0).await;
    // A client that reads gets everything.
    let mut reader = running.connect().await;
    reader.ok(subscribe("reader".to_owned())).await;
    for seq in 1..=EVENTS {
        assert_eq!(reader.event().await["event"]["seq"], seq);
    }
    drop((stuck, reader));
    let _ = publisher.socket.close(None).await;
    until(&running, "deliveries", |bytes, _| bytes == 0).await;
}

/// A ping in between does not save a message of which the rest never comes.
#[tokio::test]
async fn a_text_in_fragments_counts_until_it_is_complete() {
    let running = started(&[]).await;
    let mut client = running.connect().await;
    let text = json!({"op": "PUBLISH", "topic": "t", "payload": "x".repeat(500_000)}).to_string();
    let (start, rest) = text.split_at(400_000);
    for (first, part) in [(0x01, start), (0x80, rest)] {
        let mut frame = header(part.len());
        frame[0] = first;
        frame.extend(part.as_bytes());
        write_raw(&mut client, &frame).await;
        if first == 0x01 {
            client.socket.send(Message::Ping("p".into())).await.unwrap();
            until(&running, "frames", |bytes, _| bytes >= start.len()).await;
        }
    }
    assert_eq!(parsed(&client.answer().await)["op"], "OK");
    client.publish("t", json!(1)).await;
    until(&running, "frames", |bytes, _| bytes == 0).await;
}
