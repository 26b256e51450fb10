//! What publishers and consumers know, and what has to be true of it in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prombus_client::{Client, Outgoing, Received, Start};

/// What each publisher has on its way at a time.
const AT_ONCE: usize = 16;

/// What was answered, and what the group got.
#[derive(Default)]
pub(super) struct Ledger {
    /// The place of each id.
    answered: Mutex<BTreeMap<String, u64>>,
    count: AtomicUsize,
    consumed: Mutex<BTreeSet<String>>,
}

impl Ledger {
    /// Publishes until it is over.
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
            let ids = (0..AT_ONCE).map(|n| format!("{number}-{round}-{n}")).collect();
            self.publish(&client, ids).await;
        }
    }

    /// Consumes for as long as there is `client`.
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
            self.answered.lock().unwrap().insert(id, stored.seq.0);
            self.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until so many more were answered.
    pub(super) async fn until_answered(&self, more: usize) {
        let before = self.count.load(Ordering::Relaxed);
        while self.count.load(Ordering::Relaxed) < before + more {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until so many more were consumed.
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
        let answered = self.answered.lock().unwrap();
        // All were sent until they were answered, so that there is nothing besides.
        assert_eq!(stored, *answered, "every event is where it was answered to be");
        let places: BTreeSet<u64> = stored.values().copied().collect();
        assert_eq!(places, (1..=stored.len() as u64).collect(), "no hole, nothing double");
        assert!(self.consumed.lock().unwrap().iter().eq(stored.keys()), "the group got each");
        println!("{} events, each at its place and consumed", stored.len());
    }
}
