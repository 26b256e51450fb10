//! Exactly once despite kills: while events flow, the consumer's process, the server's, or both are
//! killed with SIGKILL at random moments, again and again.
//!
//! In the end:
//! - what the atomic form published exists exactly once for each event;
//! - the handler of the marking form ran at least once for each event, and more often only if its
//!   process was killed; each event is marked;
//! - what that handler published under an id derived from the event's exists exactly once;
//! - no event became a dead letter.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]
#![allow(clippy::print_stdout, reason = "the seed reproduces a failed run")]

mod consumer;
mod ledger;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use consumer::ConsumerProcess;
use prombus_client::{Client, EventId, Outgoing};
use prombus_proto::{RandomSource, SeededRandom, SystemRandom};

use crate::killed::process::{Process, free_address};
use crate::store::Store;

const EVENTS_PER_ROUND: u64 = 100;
const MAX_ROUND_MS: u64 = 120;

fn rounds() -> u64 {
    let asked = std::env::var("PROMBUS_EXACTLY_ONCE_ROUNDS");
    asked.map_or(200, |rounds| rounds.parse().expect("a number"))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Victim {
    Consumer,
    Server,
    Both,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn survives_kills_of_the_consumer() {
    survives_kills_of(Victim::Consumer).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn survives_kills_of_the_server() {
    survives_kills_of(Victim::Server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn survives_kills_of_both() {
    survives_kills_of(Victim::Both).await;
}

/// A server at fixed addresses, and a consumer.
struct Harness<'a> {
    store: &'a Store,
    handled: &'a Path,
    ws: SocketAddr,
    http: SocketAddr,
    server: Process,
    consumer: ConsumerProcess,
}

impl<'a> Harness<'a> {
    fn start(store: &'a Store, handled: &'a Path) -> Self {
        let (ws, http) = (free_address(), free_address());
        let server = Process::start_at(store, ws, http);
        let consumer = ConsumerProcess::start(ws, handled);
        Self { store, handled, ws, http, server, consumer }
    }

    fn kill_and_restart(&mut self, victim: Victim) {
        if victim != Victim::Server {
            self.consumer.kill();
        }
        if victim != Victim::Consumer {
            self.server.kill();
            self.server = Process::start_at(self.store, self.ws, self.http);
        }
        if victim != Victim::Server {
            self.consumer = ConsumerProcess::start(self.ws, self.handled);
        }
    }

    fn client(&self) -> Client {
        Client::builder(&format!("ws://{}", self.ws))
            .http(format!("http://{}", self.http))
            .back_off(Duration::from_millis(5), Duration::from_millis(100))
            .timeout(None)
            .connect_in_background()
            .unwrap()
    }
}

async fn survives_kills_of(victim: Victim) {
    let seed = SystemRandom.next_u64();
    println!("seed {seed}");
    let random = SeededRandom::new(seed);
    let folder = tempfile::tempdir().unwrap();
    let handled = folder.path().join("handled");
    let store = Store::new();
    let mut harness = Harness::start(&store, &handled);
    let publisher = harness.client();
    let events = rounds() * EVENTS_PER_ROUND;
    for round in 0..rounds() {
        let first = round * EVENTS_PER_ROUND;
        let publishing = publish(&publisher, first..first + EVENTS_PER_ROUND);
        let killing = async {
            let time = Duration::from_millis(random.next_u64() % MAX_ROUND_MS);
            tokio::time::sleep(time).await;
            tokio::task::block_in_place(|| harness.kill_and_restart(victim));
        };
        tokio::join!(publishing, killing);
    }
    let again = ledger::check(&harness.client(), events, &handled).await;
    println!("handlers of the marking form ran {again} times more than there are events");
    if victim == Victim::Server {
        assert_eq!(again, 0, "a running consumer knows what it has handled");
    }
    harness.consumer.kill();
    harness.server.kill();
}

async fn publish(client: &Client, numbers: std::ops::Range<u64>) {
    let mut receipts = Vec::new();
    for number in numbers {
        let event = Outgoing::new(&number).unwrap().id(&id_of(number).to_string());
        receipts.push(client.enqueue("orders", event).await.unwrap());
    }
    for receipt in receipts {
        receipt.await.unwrap();
    }
}

fn id_of(number: u64) -> EventId {
    EventId::new(&format!("order-{number}")).unwrap()
}
