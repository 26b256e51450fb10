//! The contract, run in full by every engine of this crate.

#![allow(
    clippy::unwrap_used,
    reason = "in a test, what is not as expected ends it; the place is what helps"
)]

mod crash;
mod disk;
mod faulty;
mod lasting;
mod memory;

use libtest_mimic::Arguments;

fn main() {
    crash::be_the_child_if_asked();
    let trials =
        [memory::trials(), faulty::trials(), lasting::trials(), disk::trials(), crash::trials()];
    let trials = trials.into_iter().flatten().collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
