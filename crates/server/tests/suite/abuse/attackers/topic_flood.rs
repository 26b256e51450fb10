//! Creates topics, over ever new connections.

use std::time::Duration;

use serde_json::json;

use super::Attacker;
use crate::abuse::connection::{receive, send};

/// As many as the bucket of a new connection has tokens.
const PER_CONNECTION: u64 = 200;

pub(super) async fn flood(attacker: Attacker) {
    attacker
        .repeat(4, Duration::from_millis(50), |attacker, number| async move {
            let mut socket = attacker.authenticated().await?;
            for topic in 0..PER_CONNECTION {
                let topic = format!("evil.flood-{number}-{topic}");
                send(&mut socket, &json!({"op": "PUBLISH", "topic": topic, "payload": 1})).await?;
            }
            for _ in 0..PER_CONNECTION {
                if receive(&mut socket).await?.starts_with(r#"{"op":"ERR""#) {
                    attacker.was_refused();
                }
            }
            Ok(())
        })
        .await;
}
