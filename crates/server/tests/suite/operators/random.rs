//! Random numbers from a seed, which is printed.

use std::sync::atomic::{AtomicU64, Ordering};

use prombus_proto::{RandomSource, SystemRandom};

/// Tasks share one; so a seed repeats what is chosen, not who chooses first.
pub(crate) struct Random(AtomicU64);

impl Random {
    /// The seed is `OPERATORS_SEED` if that is set.
    pub(crate) fn new() -> Self {
        let seed = std::env::var("OPERATORS_SEED")
            .map_or_else(|_| SystemRandom.next_u64(), |seed| seed.parse().expect("a number"));
        println!("OPERATORS_SEED={seed}");
        Self(AtomicU64::new(seed))
    }

    pub(crate) fn below(&self, end: u64) -> u64 {
        // SplitMix64.
        const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
        let mut mixed = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % end
    }

    /// Returns `true` this often of a hundred times.
    pub(crate) fn percent(&self, chance: u64) -> bool {
        self.below(100) < chance
    }
}
