//! The conformance suite for every engine of this crate, and tests of crashes and damage on disk.

#![allow(clippy::unwrap_used, reason = "a panic fails the test and shows the line")]

mod adopted_wal;
mod arrival;
mod backup;
mod backup_verify;
mod crash;
mod crash_deleting;
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
mod figures;
mod fixtures;
mod future_ids;
mod memory;
mod packs;
mod private_files;
mod shared_memory;

use std::process::ExitCode;

use libtest_mimic::Arguments;

fn main() -> ExitCode {
    if let Some(code) = damage_file_limit::run_as_child() {
        return code;
    }
    crash::run_as_child();
    crash_deleting::run_as_child();
    fixtures::write_if_requested();
    let trials = [
        memory::trials(),
        faulty::trials(),
        shared_memory::trials(),
        disk::trials(),
        expired_state::trials(),
        crash::trials(),
        crash_deleting::trials(),
        adopted_wal::trials(),
        arrival::trials(),
        backup::trials(),
        backup_verify::trials(),
        packs::trials(),
        figures::trials(),
        private_files::trials(),
        fixtures::trials(),
        future_ids::trials(),
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
