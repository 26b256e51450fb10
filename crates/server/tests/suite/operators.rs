//! Operators redrive dead letters, move one group and delete another, while the server is killed with SIGKILL again and
//! again. `mongo/operators.rs` does the same with several gateways.
//!
//! Whatever happens:
//! - every event is acknowledged by each working group, or is a dead letter of it that waits to be redriven;
//! - after its ACK was answered an event is not delivered again; each letter is redriven once, to its own group;
//! - a group that was moved goes on there: it acknowledges every event from there, and none before;
//! - the subscriptions to a deleted group end, nothing of it is listed, and it begins again with the first event.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]
#![allow(clippy::print_stdout, reason = "the seed of a failure is printed")]

pub(crate) mod consumer;
mod handled;
pub(crate) mod ledger;
mod letters;
mod moved;
pub(crate) mod operator;
mod random;
mod request;
pub(crate) mod roles;

use std::time::Duration;

use futures_util::future::join_all;
use ledger::Ledger;
use operator::Operator;
use roles::Role;

use crate::killed::process::Process;
use crate::killed::rounds;
use crate::store::Store;

/// Two consumers of each group.
const ROLES: [Role; 8] = [
    Role::Working(0),
    Role::Working(0),
    Role::Working(1),
    Role::Working(1),
    Role::Sought,
    Role::Sought,
    Role::Deleted,
    Role::Deleted,
];

/// Longer than anything but a hanging test takes.
const HANG_TIMEOUT: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operators_keep_their_promises_through_kills() {
    let store = Store::new();
    let ledger = Ledger::new();
    for round in 0..rounds() {
        let served = serve_until_killed(&store, &ledger, round);
        tokio::time::timeout(HANG_TIMEOUT, served).await.expect("the round hangs");
        ledger.killed();
    }
    ledger.drain();
    let process = Process::start(&store);
    let operator = Operator { servers: &[process.http], ledger: &ledger };
    let consuming = join_all(ROLES.map(|role| consumer::consume(&process.url, role, &ledger)));
    let letters = tokio::select! {
        () = tokio::time::sleep(HANG_TIMEOUT) => panic!("the end hangs"),
        letters = operator.finish() => letters,
        _ = consuming => panic!("the server is gone"),
    };
    process.kill();
    println!("{} events, {} letters", ledger.last_published(), letters.len());
    ledger.check_end(&letters);
}

async fn serve_until_killed(store: &Store, ledger: &Ledger, round: u64) {
    let process = Process::start(store);
    let operator = Operator { servers: &[process.http], ledger };
    // Ends with the connections.
    let consuming = join_all(ROLES.map(|role| consumer::consume(&process.url, role, ledger)));
    let killer = async {
        // Every second round does something before it is killed at any moment.
        if round % 2 == 1 {
            ledger.until_handled(1).await;
        }
        tokio::time::sleep(Duration::from_millis(ledger.random.below(1500))).await;
        process.kill();
    };
    // A request to a server that is gone waits for the next one, which is not started before all connections are lost.
    let operating = async {
        tokio::select! {
            () = killer => {}
            () = operator.operate() => panic!("operators do not end"),
        }
    };
    tokio::join!(consuming, operating);
}
