//! Randomness, injected so that tests repeat.

use std::sync::atomic::{AtomicU64, Ordering};

/// A source of random numbers for ids and jitter. Not cryptographic: never derive a secret from it.
pub trait RandomSource: Send + Sync + 'static {
    /// Returns the next number, uniform over all of `u64`.
    fn next_u64(&self) -> u64;
}

/// A fast generator per thread, seeded by the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemRandom;

impl RandomSource for SystemRandom {
    #[expect(clippy::disallowed_methods, reason = "the only use of real randomness")]
    fn next_u64(&self) -> u64 {
        fastrand::u64(..)
    }
}

/// A repeatable sequence (SplitMix64), for tests.
#[derive(Debug)]
pub struct SeededRandom(AtomicU64);

impl SeededRandom {
    /// Creates the sequence that belongs to `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }
}

impl RandomSource for SeededRandom {
    fn next_u64(&self) -> u64 {
        const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
        let mut z = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}
