//! Chance, handed in.

use std::sync::atomic::{AtomicU64, Ordering};

/// Where random numbers come from. Not for secrets.
pub trait Chance: Send + Sync + 'static {
    /// The next number.
    fn next_u64(&self) -> u64;
}

/// The machine's own chance: a fast generator per thread, seeded by the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemChance;

impl Chance for SystemChance {
    #[expect(clippy::disallowed_methods, reason = "the one place where real chance comes in")]
    fn next_u64(&self) -> u64 {
        fastrand::u64(..)
    }
}

/// A repeatable sequence (SplitMix64).
#[derive(Debug)]
pub struct FixedChance(AtomicU64);

impl FixedChance {
    /// The sequence that belongs to `seed`.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }
}

impl Chance for FixedChance {
    fn next_u64(&self) -> u64 {
        const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
        let mut z = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}
