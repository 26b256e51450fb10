//! The engine contract, run in full against real servers, and what this engine guarantees beyond
//! it.

#![allow(clippy::unwrap_used, reason = "a test fails where something is not as expected")]

mod conformance;
mod database;
mod expiring;
mod figures;
mod fixture;
mod gateways;
mod layout;
mod migrating;
mod refusals;
mod topic_cache;

use std::process::ExitCode;

use libtest_mimic::Arguments;

fn main() -> ExitCode {
    fixture::write_if_asked();
    let trials = [
        conformance::trials(),
        layout::trials(),
        gateways::trials(),
        topic_cache::trials(),
        refusals::trials(),
        expiring::trials(),
        figures::trials(),
        migrating::trials(),
    ];
    let trials = trials.into_iter().flatten().collect();
    let conclusion = libtest_mimic::run(&Arguments::from_args(), trials);
    prombus_test_mongod::stop_shared();
    conclusion.exit_code()
}
