//! What a group has left undone, in the eyes of the next that subscribes for it.

use prombus_client::{Received, Start, Subscription};

use crate::harness::{Ledger, Running};

/// A subscription of group g to the topic t from its beginning, that only writes down numbers.
pub(crate) async fn counting(running: &Running, ledger: &Ledger<u64>) -> Subscription {
    let (client, ledger) = (running.connect().await, ledger.clone());
    let subscribing = client.subscribe("t", "g").from(Start::Earliest);
    let handle = move |event: Received<u64>| {
        ledger.write(event.payload);
        async { Ok(()) }
    };
    subscribing.handle(handle).await.unwrap()
}

/// What group g of the topic t has not acknowledged, whatever is marked.
pub(crate) async fn not_done(running: &Running) -> Vec<u64> {
    let client = running.connect().await;
    client.publish("t", &u64::MAX).await.unwrap();
    let ledger = Ledger::new();
    let subscription = counting(running, &ledger).await;
    let mut count = 1;
    while !ledger.when(count).await.contains(&u64::MAX) {
        count += 1;
    }
    subscription.stop().await.unwrap();
    let mut left = ledger.all();
    left.retain(|number| *number != u64::MAX);
    left
}
