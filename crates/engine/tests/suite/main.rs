//! The contract, run in full by every engine of this crate.

#![allow(
    clippy::unwrap_used,
    reason = "in a test, what is not as expected ends it; the place is what helps"
)]

mod crash;
mod damage_check;
mod damage_file_limit;
mod damage_files;
mod damage_flipped;
mod damage_misplaced;
mod damage_storage;
mod damage_store;
mod damage_torn;
mod disk;
mod expired_state;
mod faulty;
mod fixtures;
mod kept_logs;
mod memory;
mod shared_memory;

use std::process::ExitCode;

use libtest_mimic::Arguments;

fn main() -> ExitCode {
    if let Some(code) = damage_file_limit::run_as_child() {
        return code;
    }
    crash::be_the_child_if_asked();
    fixtures::write_if_asked();
    let trials = [
        memory::trials(),
        faulty::trials(),
        shared_memory::trials(),
        disk::trials(),
        expired_state::trials(),
        crash::trials(),
        kept_logs::trials(),
        fixtures::trials(),
        damage_torn::trials(),
        damage_flipped::trials(),
        damage_files::trials(),
        damage_misplaced::trials(),
        damage_storage::trials(),
        damage_file_limit::trials(),
    ];
    let trials = trials.into_iter().flatten().collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
