//! Groups on a server that is killed: consumers acknowledge, reject, stall, leave and come back at
//! random, while the process is killed with SIGKILL again and again.
//!
//! Whatever happens:
//! - what was answered OK stays: published events are delivered, acknowledged ones are never
//!   redelivered;
//! - attempts keep counting, and events that every consumer rejects become dead letters, once each;
//! - a consumer that rejects nothing sees all events in order, and in the end all events are done.

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

pub(crate) fn rounds() -> u64 {
    std::env::var("PROMBUS_KILL_ROUNDS").map_or(8, |rounds| rounds.parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_keeps_its_guarantees_through_kills() {
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
        // Sometimes in the middle of publishing, sometimes when nearly everything is done.
        let time = Duration::from_millis(150 + (round * 7919) % 1200);
        // The kill ends the round, because every client loses its connection.
        let killer = async {
            // On a shared store the group is delivered only after the previous lease has
            // expired, which is later than that. Every second round waits for it.
            if round % 2 == 1 {
                ledger.delivers().await;
            }
            tokio::time::sleep(time).await;
            process.kill();
        };
        tokio::join!(work, killer);
        ledger.killed();
    }
    // Now without a kill, until everything is done.
    let process = Process::start(&store);
    publisher::publish_unanswered(&process.url, &ledger).await;
    consumer::drain(&process, &ledger).await;
    consumer::observe(&process.url, Some(ledger.last_stored()), &ledger).await;
    let dead = consumer::dead_letters(&process.url, ledger.doomed_events()).await;
    process.kill();
    ledger.check_end(&dead);
}
