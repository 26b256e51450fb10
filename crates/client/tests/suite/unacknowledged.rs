//! The events that a group has not acknowledged, as the next member sees them.

use prombus_client::{Received, Start, Subscription};

use crate::harness::{Ledger, TestServer};

/// Subscribes to the topic `t` as group `g` from the start, and records the payloads.
pub(crate) async fn recording(server: &TestServer, ledger: &Ledger<u64>) -> Subscription {
    let (client, ledger) = (server.connect().await, ledger.clone());
    let builder = client.subscribe("t", "g").from(Start::Earliest);
    let handle = move |event: Received<u64>| {
        ledger.write(event.payload);
        async { Ok(()) }
    };
    builder.handle(handle).await.unwrap()
}

/// Returns the payloads in the topic `t` that group `g` has not acknowledged, marked or not.
pub(crate) async fn unacknowledged_events(server: &TestServer) -> Vec<u64> {
    let client = server.connect().await;
    client.publish("t", &u64::MAX).await.unwrap();
    let ledger = Ledger::new();
    let subscription = recording(server, &ledger).await;
    let mut count = 1;
    while !ledger.wait_for_len(count).await.contains(&u64::MAX) {
        count += 1;
    }
    subscription.stop().await.unwrap();
    let mut left = ledger.all();
    left.retain(|number| *number != u64::MAX);
    left
}
