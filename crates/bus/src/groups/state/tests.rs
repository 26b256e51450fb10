//! Random histories of a group, run on the state machine alone: no task, no runtime, no engine. Every step,
//! every completed commit and every fault is drawn from a seed, and a failing seed prints itself.

mod group_model;
mod several_gateways_model;
mod simulation;

use prombus_proto::{RandomSource, SeededRandom};

/// Runs `history` with every seed below `seeds`.
fn for_each_seed(seeds: u64, history: impl Fn(&Dice) + std::panic::RefUnwindSafe) {
    for seed in 0..seeds {
        let run = || history(&Dice(SeededRandom::new(seed)));
        if let Err(failure) = std::panic::catch_unwind(run) {
            eprintln!("failed with seed {seed}");
            std::panic::resume_unwind(failure);
        }
    }
}

struct Dice(SeededRandom);

impl Dice {
    fn below(&self, end: u64) -> u64 {
        self.0.next_u64() % end
    }

    fn index(&self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap()
    }
}
