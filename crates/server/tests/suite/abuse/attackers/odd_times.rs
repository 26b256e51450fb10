//! Publishes ids from the far future, times from 1970, from tomorrow and from beyond what the server accepts.

use std::time::Duration;

use prombus_proto::{Clock, SystemClock};
use serde_json::json;
use uuid::{Builder, Uuid};

use super::Attacker;

const DAY_MS: u64 = 24 * 3_600_000;

/// Returns a UUIDv7 of that time.
fn id_of(ms: u64, number: u64) -> Uuid {
    let mut random = [0; 10];
    random[2..].copy_from_slice(&number.to_be_bytes());
    Builder::from_unix_timestamp_millis(ms, &random).into_uuid()
}

pub(super) async fn publish(attacker: Attacker) {
    attacker
        .repeat(2, Duration::from_millis(100), |attacker, number| async move {
            let now = SystemClock.now().0;
            let mut socket = attacker.authenticated().await?;
            for (index, (id_ms, ts)) in [
                ((1 << 48) - 1, 0),
                (now + 365 * DAY_MS, now + DAY_MS / 2),
                (0, now + 2 * DAY_MS),
                (now, u64::MAX),
            ]
            .into_iter()
            .enumerate()
            {
                let id = id_of(id_ms, number * 4 + index as u64);
                let opts = json!({"id": id.to_string(), "ts": ts});
                let frame =
                    json!({"op": "PUBLISH", "topic": "evil.odd", "payload": 1, "opts": opts});
                attacker.ask(&mut socket, &frame).await?;
            }
            Ok(())
        })
        .await;
}
