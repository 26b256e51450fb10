//! What publishers and consumers know, and what must hold in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prombus_client::{Client, Outgoing, Received, Start};

/// How many events each publisher has in flight.
const IN_FLIGHT: usize = 16;

#[derive(Default)]
pub(super) struct Ledger {
    /// The acknowledged position of each id.
    acknowledged: Mutex<BTreeMap<String, u64>>,
    count: AtomicUsize,
    consumed: Mutex<BTreeSet<String>>,
}

impl Ledger {
    /// Publishes until `is_over`.
    pub(super) async fn publish_on(
        self: Arc<Self>,
        client: Client,
        number: usize,
        is_over: Arc<AtomicBool>,
    ) {
        for round in 0.. {
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            let ids = (0..IN_FLIGHT).map(|n| format!("{number}-{round}-{n}")).collect();
            self.publish(&client, ids).await;
        }
    }

    /// Consumes for as long as `client` exists.
    pub(super) async fn consume(self: Arc<Self>, client: &Client) {
        let orders = client.subscribe("orders", "billing").from(Start::Earliest);
        let handle = move |order: Received<String>| {
            self.consumed.lock().unwrap().insert(order.payload.clone());
            async { Ok(()) }
        };
        orders.concurrency(64).max_attempts(1000).handle(handle).await.unwrap();
    }

    pub(super) async fn publish(&self, client: &Client, ids: Vec<String>) {
        let mut receipts = Vec::new();
        for id in ids {
            let event = Outgoing::new(&id).unwrap().id(&id);
            receipts.push((id, client.enqueue("orders", event).await.unwrap()));
        }
        for (id, receipt) in receipts {
            let stored = receipt.await.unwrap();
            self.acknowledged.lock().unwrap().insert(id, stored.seq.0);
            self.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until this many more events are acknowledged.
    pub(super) async fn until_acknowledged(&self, more: usize) {
        let before = self.count.load(Ordering::Relaxed);
        while self.count.load(Ordering::Relaxed) < before + more {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until this many more events are consumed.
    pub(super) async fn until_consumed(&self, more: usize) {
        let consumed = || self.consumed.lock().unwrap().len();
        let before = consumed();
        while consumed() < before + more {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(super) async fn until_all_consumed(&self) {
        while self.consumed.lock().unwrap().len() < self.count.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(super) async fn check(&self, client: &Client) {
        let mut stored = BTreeMap::new();
        let mut events = client.export("orders").stream::<String>().unwrap();
        while let Some(event) = events.next().await {
            let event = event.unwrap();
            let before = stored.insert(event.payload, event.seq.0);
            assert_eq!(before, None, "stored twice, the second time at {}", event.seq.0);
        }
        let acknowledged = self.acknowledged.lock().unwrap();
        // Every event was sent until it was acknowledged, so nothing else is stored.
        assert_eq!(stored, *acknowledged, "every event is at its acknowledged position");
        let positions: BTreeSet<u64> = stored.values().copied().collect();
        assert_eq!(positions, (1..=stored.len() as u64).collect(), "no gap and no duplicate");
        assert!(
            self.consumed.lock().unwrap().iter().eq(stored.keys()),
            "the group received every event"
        );
        println!("{} events, each at its position and consumed", stored.len());
    }
}
