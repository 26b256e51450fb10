//! The contract, run in full by every engine of this crate.

mod damage_check;
mod damage_files;
mod damage_flipped;
mod damage_storage;
mod damage_store;
mod damage_torn;
mod disk;
mod faulty;
mod lasting;
mod memory;

use libtest_mimic::Arguments;

fn main() {
    let trials = [
        memory::trials(),
        faulty::trials(),
        lasting::trials(),
        disk::trials(),
        damage_torn::trials(),
        damage_flipped::trials(),
        damage_files::trials(),
        damage_storage::trials(),
    ];
    let trials = trials.into_iter().flatten().collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
