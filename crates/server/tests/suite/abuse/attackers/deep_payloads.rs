//! Publishes payloads that nest as deep as possible, and deeper.

use std::time::Duration;

use futures_util::SinkExt;
use tokio_tungstenite::tungstenite::Message;

use super::Attacker;
use crate::abuse::connection::receive;

pub(super) async fn publish(attacker: Attacker) {
    attacker
        .repeat(2, Duration::from_millis(100), |attacker, _| async move {
            let mut socket = attacker.authenticated().await?;
            for depth in [100, 101, 127, 10_000, 500_000] {
                let nested = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
                let frame = format!(r#"{{"op":"PUBLISH","topic":"evil.deep","payload":{nested}}}"#);
                socket.send(Message::text(frame)).await?;
                if receive(&mut socket).await?.starts_with(r#"{"op":"ERR""#) {
                    attacker.was_refused();
                }
            }
            Ok(())
        })
        .await;
}
