//! Two and three gateways on one database, all of them publishing to one topic and consuming in one
//! group, and one of them after the other ended with SIGKILL.
//!
//! What has to hold, whatever happens:
//! - what was answered OK is there, once, and at the place that was answered; places have no hole;
//! - the group gets every event, whichever gateway delivers it;
//! - after each kill the others go on delivering, by themselves.
//!
//! How long a kill keeps consumers waiting is printed.

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
/// Consumed between two kills, so that each comes under load.
const BETWEEN_KILLS: usize = 200;
/// So long nothing takes, except for something that hangs.
const HANG: Duration = Duration::from_secs(300);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_go_on_when_one_is_killed() {
    tokio::time::timeout(HANG, kill_one_after_the_other(2)).await.expect("it hangs");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_go_on_when_one_is_killed() {
    tokio::time::timeout(HANG, kill_one_after_the_other(3)).await.expect("it hangs");
}

/// A gateway that comes back at the same addresses, so that its clients find it.
struct Gateway {
    ws: SocketAddr,
    http: SocketAddr,
    process: Process,
}

impl Gateway {
    fn start(store: &Store) -> Self {
        let (ws, http) = (free_address(), free_address());
        Self { ws, http, process: Self::process(store, ws, http) }
    }

    fn process(store: &Store, ws: SocketAddr, http: SocketAddr) -> Process {
        Process::start_at(store, ws, http)
    }

    fn start_again(&mut self, store: &Store) {
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
    let store = Store::Database(shared(Kind::ReplicaSet).url_of(&new_database()));
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
        let place = usize::try_from(random.next_u64() % count as u64).unwrap();
        gateways[place].process.kill();
        let began = Instant::now();
        // More than any of them can have on its way.
        ledger.until_consumed(BETWEEN_KILLS).await;
        println!(
            "kill {kill} of {count}: {BETWEEN_KILLS} more consumed after {:?}",
            began.elapsed()
        );
        gateways[place].start_again(&store);
    }
    is_over.store(true, Ordering::Relaxed);
    for publisher in publishing {
        publisher.await.unwrap();
    }
    ledger.until_all_consumed().await;
    ledger.check(&gateways[0].client()).await;
}
