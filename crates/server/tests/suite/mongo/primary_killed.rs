//! The primary of a replica set of three, ended with SIGKILL again and again while events are
//! published and consumed.
//!
//! What has to hold, whatever happens:
//! - what was answered OK is there, once, and at the place that was answered; places have no hole;
//! - publishing and consuming go on by themselves: the server and its clients stay as they are;
//! - a group gets every event.
//!
//! How long a kill keeps publishers waiting is printed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use prombus_client::{Client, Outgoing, Received, Start};
use prombus_test_mongod::ReplicaSet;

use crate::killed::process::{Process, free_address};
use crate::store::Store;

const KILLS: usize = 10;
const PUBLISHERS: usize = 4;
/// What each of them has on its way at a time.
const AT_ONCE: usize = 16;
/// Answered between two kills, so that each comes under load.
const BETWEEN_KILLS: usize = 300;
/// So long nothing takes, except for something that hangs.
const HANG: Duration = Duration::from_secs(300);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_answered_stays_and_publishing_goes_on_by_itself() {
    tokio::time::timeout(HANG, publish_through_kills()).await.expect("it hangs");
}

async fn publish_through_kills() {
    let mut set = ReplicaSet::start(3).await;
    let (ws, http) = (free_address(), free_address());
    let server = Process::start_at(&Store::Database(set.url_of("prombus")), ws, http);
    let client = || {
        Client::builder(&format!("ws://{ws}"))
            .http(format!("http://{http}"))
            .timeout(None)
            .connect_in_background()
            .unwrap()
    };
    let ledger = Arc::new(Ledger::default());
    let consumer = client();
    consume(&consumer, Arc::clone(&ledger)).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let publishers = (0..PUBLISHERS)
        .map(|number| publish(client(), number, Arc::clone(&ledger), Arc::clone(&is_over)))
        .map(tokio::spawn);
    let publishers: Vec<_> = publishers.collect();
    let witness = client();
    for kill in 1..=KILLS {
        ledger.until_answered(BETWEEN_KILLS).await;
        let member = set.kill_primary().await;
        let began = Instant::now();
        // Handed in after the kill, so that only another primary can have stored it.
        ledger.publish(&witness, vec![format!("behind-kill-{kill}")]).await;
        println!("kill {kill}: stored again after {:?}", began.elapsed());
        set.start_again(member).await;
    }
    is_over.store(true, Ordering::Relaxed);
    for publisher in publishers {
        publisher.await.unwrap();
    }
    ledger.until_all_consumed().await;
    ledger.check(&witness).await;
    server.kill();
}

async fn consume(client: &Client, ledger: Arc<Ledger>) {
    let orders = client.subscribe("orders", "billing").from(Start::Earliest);
    let handled =
        orders.concurrency(64).max_attempts(1000).handle(move |order: Received<String>| {
            ledger.consumed.lock().unwrap().insert(order.payload.clone());
            async { Ok(()) }
        });
    handled.await.unwrap();
}

async fn publish(client: Client, number: usize, ledger: Arc<Ledger>, is_over: Arc<AtomicBool>) {
    for round in 0.. {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let ids = (0..AT_ONCE).map(|n| format!("{number}-{round}-{n}")).collect();
        ledger.publish(&client, ids).await;
    }
}

/// What was answered, and what the group got.
#[derive(Default)]
struct Ledger {
    /// The place of each id.
    answered: Mutex<BTreeMap<String, u64>>,
    count: AtomicUsize,
    consumed: Mutex<BTreeSet<String>>,
}

impl Ledger {
    async fn publish(&self, client: &Client, ids: Vec<String>) {
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
    async fn until_answered(&self, more: usize) {
        let before = self.count.load(Ordering::Relaxed);
        while self.count.load(Ordering::Relaxed) < before + more {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn until_all_consumed(&self) {
        while self.consumed.lock().unwrap().len() < self.count.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn check(&self, client: &Client) {
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
        println!("{} events through {KILLS} kills", stored.len());
    }
}
