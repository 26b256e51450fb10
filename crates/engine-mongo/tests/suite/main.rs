//! The contract, run in full against real servers, and what this engine promises beyond it.

#![allow(
    clippy::unwrap_used,
    reason = "in a test, what is not as expected ends it; the place is what helps"
)]

mod conformance;
mod database;
mod ends;
mod expiring;
mod fixture;
mod gateways;
mod layout;
mod migrating;
mod refusals;

use std::process::ExitCode;

use libtest_mimic::Arguments;

fn main() -> ExitCode {
    fixture::write_if_asked();
    let trials = [
        conformance::trials(),
        layout::trials(),
        gateways::trials(),
        ends::trials(),
        refusals::trials(),
        expiring::trials(),
        migrating::trials(),
    ];
    let trials = trials.into_iter().flatten().collect();
    let conclusion = libtest_mimic::run(&Arguments::from_args(), trials);
    prombus_test_mongod::end_shared();
    conclusion.exit_code()
}
