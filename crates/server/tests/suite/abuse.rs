//! Abuse: everything that a hostile or broken client can do, all at once, while a well-behaved publisher and consumer
//! work on the same server.
//!
//! The first phase has no attackers and the second does; both take equally long. Whatever the attackers do, nothing
//! that the well-behaved client publishes is lost, doubled or out of order, no request of it is refused, the server
//! stays healthy, and its memory stays within its budgets. How much slower it gets depends on the machine, and so is
//! printed rather than asserted; `make abuse` prints it for the release build.
//!
//! - `server`: the built binary, its health and its memory
//! - `well_behaved`: the publisher and the consumer, and what they measure
//! - `attackers`: one file per attacker
//! - `connection`: connections from a chosen address
//! - `report`: the comparison of the phases

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

mod attackers;
mod connection;
mod report;
mod server;
mod well_behaved;

use std::time::Duration;

use attackers::Attack;
use report::{Measured, print};
use server::AttackedServer;

/// The memory of things that counts limit rather than budgets: connections, topics, groups.
const COUNTED_MEMORY: u64 = 192 << 20;

/// The length of each phase.
fn phase() -> Duration {
    let asked = std::env::var("PROMBUS_ABUSE_SECONDS");
    Duration::from_secs(asked.map_or(8, |seconds| seconds.parse().expect("a number")))
}

#[test]
fn attackers_hurt_only_themselves() {
    let server = AttackedServer::start();
    let without = measure(&server);
    let attack = Attack::start(server.target());
    let with = measure(&server);
    let tallies = attack.stop();
    print(&without, &with, &tallies);
    for measured in [&without, &with] {
        assert_eq!(measured.work.refusals, Vec::<String>::new(), "it is not refused");
        measured.work.assert_complete_and_in_order();
        assert_eq!(measured.unhealthy, Vec::<String>::new(), "health checks are answered");
    }
    let (used, budgets) =
        (with.memory.saturating_sub(without.memory), AttackedServer::memory_budgets());
    assert!(
        used < budgets + COUNTED_MEMORY,
        "attackers make the server use {used} bytes, with budgets of {budgets}"
    );
    server.assert_alive();
}

fn measure(server: &AttackedServer) -> Measured {
    let target = server.target();
    let checks = server::HealthChecks::start(target.http);
    let work = well_behaved::work(target, phase());
    Measured { work, unhealthy: checks.stop(), memory: server.peak_memory() }
}
