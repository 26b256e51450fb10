//! What the ledgers must contain in the end.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use prombus_client::{Client, ErrorCode, EventId};

use super::id_of;

/// Longer than anything but a hanging consumer takes.
const HANG_TIMEOUT: Duration = Duration::from_secs(120);

/// Waits until both groups have marked all events, and checks the results. Returns how many times
/// the handler of the marking form ran more often than once.
pub(super) async fn check(client: &Client, events: u64, handled: &Path) -> u64 {
    let all: Vec<EventId> = (0..events).map(id_of).collect();
    for group in ["atomic", "marking"] {
        until_marked(client, group, &all).await;
    }
    for ledger in ["ledger.atomic", "ledger.marking"] {
        let times = times_in_topic(client, ledger).await;
        let wrong: Vec<_> = (0..events).filter(|number| times.get(number) != Some(&1)).collect();
        assert!(wrong.is_empty(), "not once in {ledger}: {wrong:?}");
    }
    let text = std::fs::read_to_string(handled).unwrap();
    let mut times: HashMap<u64, u64> = HashMap::new();
    for line in text.lines() {
        *times.entry(line.parse().expect("a number")).or_default() += 1;
    }
    let missing: Vec<_> = (0..events).filter(|number| !times.contains_key(number)).collect();
    assert!(missing.is_empty(), "never handled: {missing:?}");
    let letters = client.replay("dlq.orders").stream::<serde_json::Value>().unwrap().next().await;
    let none =
        matches!(&letters, Some(Err(error)) if error.code() == Some(ErrorCode::UnknownTopic));
    assert!(none, "{letters:?}");
    times.values().map(|times| times - 1).sum()
}

async fn until_marked(client: &Client, group: &str, all: &[EventId]) {
    let started = Instant::now();
    while client.seen("orders", group, all).await.unwrap().len() < all.len() {
        assert!(started.elapsed() < HANG_TIMEOUT, "{group} makes no progress");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn times_in_topic(client: &Client, topic: &str) -> HashMap<u64, u64> {
    let mut times = HashMap::new();
    let mut events = client.export(topic).stream::<u64>().unwrap();
    while let Some(event) = events.next().await {
        *times.entry(event.unwrap().payload).or_default() += 1;
    }
    times
}
