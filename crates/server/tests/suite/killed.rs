//! Groups through a server that is killed: random publishes and consumers that acknowledge, refuse,
//! stall, leave and come back, while the process is ended with SIGKILL again and again.
//!
//! What has to hold, whatever happens:
//! - what was answered OK stays: published events are delivered, acknowledged ones never come again;
//! - attempts count on, and events that nobody can handle become dead letters, once each;
//! - a consumer that gives nothing back sees all events in order; and in the end all are done.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

mod consumer;
mod ledger;
pub(crate) mod process;
mod publisher;

use std::sync::Arc;
use std::time::Duration;

use ledger::Ledger;
use process::Process;

use crate::store::Store;

const EVENTS_PER_ROUND: u64 = 400;

fn rounds() -> u64 {
    std::env::var("PROMBUS_KILL_ROUNDS").map_or(8, |rounds| rounds.parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_keeps_its_promises_through_kills() {
    let store = Store::new();
    let ledger = Arc::new(Ledger::default());
    for round in 0..rounds() {
        let process = Process::start(&store);
        let publishing = publisher::publish(&process.url, round, EVENTS_PER_ROUND, &ledger);
        let consuming =
            (0..3).map(|number| consumer::consume(&process.url, number, round, &ledger));
        let consuming = futures_util::future::join_all(consuming);
        let observing = consumer::observe(&process.url, None, &ledger);
        let work = async { tokio::join!(publishing, consuming, observing) };
        // Sometimes in the middle of publishing, sometimes when nearly all is done.
        let time = Duration::from_millis(150 + (round * 7919) % 1200);
        // Ends with the kill: then everybody has lost the connection.
        let killer = async {
            // Where others could hold the group, it is delivered only when the lease of the one
            // before is over, which is later than that. Every second one gets so far.
            if round % 2 == 1 {
                ledger.delivers().await;
            }
            tokio::time::sleep(time).await;
            process.kill();
        };
        tokio::join!(work, killer);
        ledger.killed();
    }
    // Now without a kill, until all is done.
    let process = Process::start(&store);
    publisher::publish_again_what_is_unknown(&process.url, &ledger).await;
    consumer::drain(&process, &ledger).await;
    consumer::observe(&process.url, Some(ledger.last_stored()), &ledger).await;
    let dead = consumer::dead_letters(&process.url, ledger.doomed_events()).await;
    process.kill();
    ledger.check_end(&dead);
}
