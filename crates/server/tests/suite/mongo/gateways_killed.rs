//! Two and three gateways on one database, all publishing to one topic and consuming in one group,
//! while one after the other is killed with SIGKILL.
//!
//! Whatever happens:
//! - every acknowledged event is stored once, at the acknowledged position, and positions have no
//!   gap;
//! - the group receives every event, whichever gateway delivers it;
//! - after each kill the other gateways continue to deliver.
//!
//! Prints how long each kill makes consumers wait.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use prombus_client::Client;
use prombus_proto::{RandomSource, SystemRandom};
use prombus_test_mongod::{Kind, new_database, shared};

use super::ledger::Ledger;
use crate::killed::process::{Process, free_address};
use crate::store::Store;

const KILLS: usize = 6;
/// Events consumed between two kills, so that each kill happens under load.
const BETWEEN_KILLS: usize = 200;
/// Longer than anything but a hanging test takes.
const HANG_TIMEOUT: Duration = Duration::from_secs(300);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gateways_survive_kills_of_one() {
    tokio::time::timeout(HANG_TIMEOUT, kill_one_after_the_other(2)).await.expect("the test hangs");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_gateways_survive_kills_of_one() {
    tokio::time::timeout(HANG_TIMEOUT, kill_one_after_the_other(3)).await.expect("the test hangs");
}

/// A gateway that restarts at the same addresses, so that its clients find it.
pub(super) struct Gateway {
    pub(super) ws: SocketAddr,
    pub(super) http: SocketAddr,
    pub(super) process: Process,
}

impl Gateway {
    pub(super) fn start(store: &Store) -> Self {
        let (ws, http) = (free_address(), free_address());
        Self { ws, http, process: Self::process(store, ws, http) }
    }

    fn process(store: &Store, ws: SocketAddr, http: SocketAddr) -> Process {
        Process::start_at(store, ws, http)
    }

    pub(super) fn restart(&mut self, store: &Store) {
        self.process = Self::process(store, self.ws, self.http);
    }

    fn client(&self) -> Client {
        Client::builder(&format!("ws://{}", self.ws))
            .http(format!("http://{}", self.http))
            .timeout(None)
            .back_off(Duration::from_millis(20), Duration::from_millis(200))
            .connect_in_background()
            .unwrap()
    }
}

async fn kill_one_after_the_other(count: usize) {
    let store = Store::Database(shared(Kind::ReplicaSet).database_url(&new_database()));
    let mut gateways: Vec<Gateway> = (0..count).map(|_| Gateway::start(&store)).collect();
    let ledger = Arc::new(Ledger::default());
    let is_over = Arc::new(AtomicBool::new(false));
    let (mut consumers, mut publishing) = (vec![], vec![]);
    for (number, gateway) in gateways.iter().enumerate() {
        let client = gateway.client();
        Arc::clone(&ledger).consume(&client).await;
        consumers.push(client);
        let (ledger, is_over) = (Arc::clone(&ledger), Arc::clone(&is_over));
        publishing.push(tokio::spawn(ledger.publish_on(gateway.client(), number, is_over)));
    }
    let random = SystemRandom;
    for kill in 1..=KILLS {
        ledger.until_consumed(BETWEEN_KILLS).await;
        let victim = usize::try_from(random.next_u64() % count as u64).unwrap();
        gateways[victim].process.kill();
        let killed_at = Instant::now();
        // More than can be in flight.
        ledger.until_consumed(BETWEEN_KILLS).await;
        println!(
            "kill {kill} of {count}: {BETWEEN_KILLS} more consumed after {:?}",
            killed_at.elapsed()
        );
        gateways[victim].restart(&store);
    }
    is_over.store(true, Ordering::Relaxed);
    for publisher in publishing {
        publisher.await.unwrap();
    }
    ledger.until_all_consumed().await;
    ledger.check(&gateways[0].client()).await;
}
