//! Exactly once, through kills: while events flow, the consumer's process, the server's, or both are
//! ended with SIGKILL at random points, again and again.
//!
//! What has to hold in the end, whatever happened:
//! - what the atomic form published is there exactly once for each event;
//! - the handler of the marking form ran at least once for each event, and not again unless its
//!   process was killed; each event is marked;
//! - what that handler published under an id made of the event's is there exactly once;
//! - no event became a dead letter.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]
#![allow(clippy::print_stdout, reason = "the seed tells what a failed run did")]

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
const LONGEST_ROUND_MS: u64 = 120;

fn rounds() -> u64 {
    let asked = std::env::var("PROMBUS_EXACTLY_ONCE_ROUNDS");
    asked.map_or(200, |rounds| rounds.parse().expect("a number"))
}

/// Whom to kill.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Victim {
    Consumer,
    Server,
    Both,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_consumer_killed() {
    holds_with(Victim::Consumer).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_server_killed() {
    holds_with(Victim::Server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_both_killed() {
    holds_with(Victim::Both).await;
}

/// A server at an address that stays, and a consumer.
struct Scene<'a> {
    store: &'a Store,
    handled: &'a Path,
    ws: SocketAddr,
    http: SocketAddr,
    server: Process,
    consumer: ConsumerProcess,
}

impl<'a> Scene<'a> {
    fn start(store: &'a Store, handled: &'a Path) -> Self {
        let (ws, http) = (free_address(), free_address());
        let server = Process::start_at(store, ws, http);
        let consumer = ConsumerProcess::start(ws, handled);
        Self { store, handled, ws, http, server, consumer }
    }

    fn kill_and_start_again(&mut self, victim: Victim) {
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

async fn holds_with(victim: Victim) {
    let seed = SystemRandom.next_u64();
    println!("seed {seed}");
    let random = SeededRandom::new(seed);
    let folder = tempfile::tempdir().unwrap();
    let handled = folder.path().join("handled");
    let store = Store::new();
    let mut scene = Scene::start(&store, &handled);
    let publisher = scene.client();
    let events = rounds() * EVENTS_PER_ROUND;
    for round in 0..rounds() {
        let first = round * EVENTS_PER_ROUND;
        let publishing = publish(&publisher, first..first + EVENTS_PER_ROUND);
        let killing = async {
            let time = Duration::from_millis(random.next_u64() % LONGEST_ROUND_MS);
            tokio::time::sleep(time).await;
            tokio::task::block_in_place(|| scene.kill_and_start_again(victim));
        };
        tokio::join!(publishing, killing);
    }
    let again = ledger::check(&scene.client(), events, &handled).await;
    println!("handlers of the marking form ran {again} times more than there are events");
    if victim == Victim::Server {
        assert_eq!(again, 0, "a consumer that lives knows what it handled");
    }
    scene.consumer.kill();
    scene.server.kill();
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
