//! The primary of a replica set of three, ended with SIGKILL again and again while events are
//! published and consumed.
//!
//! What has to hold, whatever happens:
//! - what was answered OK is there, once, and at the place that was answered; places have no hole;
//! - publishing and consuming go on by themselves: the server and its clients stay as they are;
//! - a group gets every event.
//!
//! How long a kill keeps publishers waiting is printed.

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
    Arc::clone(&ledger).consume(&consumer).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let publishers = (0..PUBLISHERS)
        .map(|number| Arc::clone(&ledger).publish_on(client(), number, Arc::clone(&is_over)))
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
