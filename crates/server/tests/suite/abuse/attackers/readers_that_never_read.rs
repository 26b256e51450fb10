//! Asks for megabytes and reads none of them.

use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio_tungstenite::tungstenite::Error;

use super::Attacker;
use crate::abuse::connection::{send, tcp};
use crate::abuse::server::ATTACKER;

const TOPIC: &str = "evil.large";
/// A page of `/replay` has at most 8 MiB.
const EVENTS: usize = 60;
const EVENT_BYTES: usize = 200_000;

/// Fills the topic. Repeated calls store nothing.
async fn fill(attacker: &Attacker) -> Result<(), Error> {
    let mut socket = attacker.authenticated().await?;
    let text = "x".repeat(EVENT_BYTES);
    for number in 0..EVENTS {
        let frame = json!({
            "op": "PUBLISH", "topic": TOPIC, "payload": text, "opts": {"id": format!("large-{number}")},
        });
        attacker.ask(&mut socket, &frame).await?;
    }
    Ok(())
}

/// Requests large pages and the live stream.
pub(super) async fn replay(attacker: Attacker) {
    // Without the events there is less to pin; the attack goes on.
    let _ = fill(&attacker).await;
    attacker
        .repeat(120, Duration::from_secs(1), |attacker, number| async move {
            let http = attacker.target.http;
            let mut stream = tcp(attacker.from, http).await?;
            let path = match number % 6 {
                0 => format!("/stream?topic={TOPIC}&from=earliest"),
                1 => format!("/export?topic={TOPIC}"),
                _ => format!("/replay?topic={TOPIC}&limit=10000"),
            };
            let request = format!(
                "GET {path} HTTP/1.1\r\nhost: {http}\r\nauthorization: Bearer {ATTACKER}\r\n\r\n"
            );
            stream.write_all(request.as_bytes()).await?;
            // Longer than the time that the server gives a reader.
            tokio::time::sleep(Duration::from_secs(15)).await;
            Ok(())
        })
        .await;
}

/// Subscribes to large events and to those of the well-behaved client.
pub(super) async fn subscribe(attacker: Attacker) {
    attacker
        .repeat(40, Duration::from_secs(1), |attacker, number| async move {
            let mut socket = attacker.authenticated().await?;
            for topic in [TOPIC, "good.work"] {
                let group = format!("unread-{}", number % 40);
                let opts = json!({"from": "earliest", "maxInFlight": 10_000});
                let frame =
                    json!({"op": "SUBSCRIBE", "topic": topic, "group": group, "opts": opts});
                send(&mut socket, &frame).await?;
            }
            tokio::time::sleep(Duration::from_secs(15)).await;
            Ok(())
        })
        .await;
}
