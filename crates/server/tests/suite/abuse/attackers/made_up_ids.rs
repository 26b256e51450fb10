//! Acknowledges events that never existed, as many as a frame may name, with and without a mark.

use std::time::Duration;

use serde_json::json;

use super::Attacker;

const IDS: u64 = 10_000;

pub(super) async fn acknowledge(attacker: Attacker) {
    attacker
        .repeat(4, Duration::from_millis(200), |attacker, number| async move {
            let mut socket = attacker.authenticated().await?;
            let group = format!("made-up-{}", number % 4);
            let topic = "evil.made-up";
            attacker
                .ask(&mut socket, &json!({"op": "SUBSCRIBE", "topic": topic, "group": group}))
                .await?;
            for round in 0..20 {
                let ids: Vec<_> = (0..IDS).map(|id| format!("{number}-{round}-{id}")).collect();
                let frame = json!({
                    "op": "ACK", "topic": topic, "group": group, "ids": ids, "mark": round % 2 == 0,
                });
                attacker.ask(&mut socket, &frame).await?;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Ok(())
        })
        .await;
}
