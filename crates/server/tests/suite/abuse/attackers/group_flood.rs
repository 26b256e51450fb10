//! Creates groups on the topic of the well-behaved client, over ever new connections.

use std::time::Duration;

use serde_json::json;

use super::Attacker;
use crate::abuse::connection::{receive, send};

/// As many as a connection may have subscriptions.
const PER_CONNECTION: u64 = 128;

pub(super) async fn flood(attacker: Attacker) {
    attacker
        .repeat(4, Duration::from_millis(50), |attacker, number| async move {
            let mut socket = attacker.authenticated().await?;
            for group in 0..PER_CONNECTION {
                let group = format!("flood-{number}-{group}");
                let frame = json!({"op": "SUBSCRIBE", "topic": "good.work", "group": group});
                send(&mut socket, &frame).await?;
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
