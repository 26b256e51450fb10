//! The primary of a replica set of three is killed with SIGKILL again and again while events are
//! published and consumed.
//!
//! Whatever happens:
//! - every acknowledged event is stored once, at the acknowledged position, and positions have no
//!   gap;
//! - publishing and consuming continue without restarting the server or its clients;
//! - a group receives every event.
//!
//! Prints how long each kill makes publishers wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use prombus_client::Client;
use prombus_test_mongod::ReplicaSet;

use super::ledger::Ledger;
use crate::killed::process::{Process, free_address};
use crate::store::Store;

const KILLS: usize = 10;
const PUBLISHERS: usize = 4;
/// Events acknowledged between two kills, so that each kill happens under load.
const BETWEEN_KILLS: usize = 300;
/// Longer than anything but a hanging test takes.
const HANG_TIMEOUT: Duration = Duration::from_secs(300);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_events_survive_and_publishing_continues() {
    tokio::time::timeout(HANG_TIMEOUT, publish_through_kills()).await.expect("the test hangs");
}

async fn publish_through_kills() {
    let mut set = ReplicaSet::start(3).await;
    let (ws, http) = (free_address(), free_address());
    let server = Process::start_at(&Store::Database(set.database_url("prombus")), ws, http);
    let client = || {
        Client::builder(&format!("ws://{ws}"))
            .http(format!("http://{http}"))
            .timeout(None)
            .connect_in_background()
            .unwrap()
    };
    let ledger = Arc::new(Ledger::default());
    let consumer = client();
    Arc::clone(&ledger).consume(&consumer).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let publishers = (0..PUBLISHERS)
        .map(|number| Arc::clone(&ledger).publish_on(client(), number, Arc::clone(&is_over)))
        .map(tokio::spawn);
    let publishers: Vec<_> = publishers.collect();
    let witness = client();
    for kill in 1..=KILLS {
        ledger.until_acknowledged(BETWEEN_KILLS).await;
        let member = set.kill_primary().await;
        let killed_at = Instant::now();
        // Published after the kill, so only another primary can store it.
        ledger.publish(&witness, vec![format!("after-kill-{kill}")]).await;
        println!("kill {kill}: stored again after {:?}", killed_at.elapsed());
        set.restart(member).await;
    }
    is_over.store(true, Ordering::Relaxed);
    for publisher in publishers {
        publisher.await.unwrap();
    }
    ledger.until_all_consumed().await;
    ledger.check(&witness).await;
    server.kill();
}
