//! Bounds the memory of buffers, for the whole process: one budget for each kind of buffer.
//!
//! - [`budget`]: shares a number of bytes fairly among their holders
//! - [`fair_share`]: how much one of them may hold

mod budget;
mod fair_share;

pub use budget::{Budget, Share};

/// The bytes that buffers of each kind may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Recent events of topics with followers.
    pub feeds: usize,
    /// Events that groups have read for their members.
    pub read_ahead: usize,
    /// Deliveries and answers that clients have not read yet.
    pub deliveries: usize,
    /// Frames that have not arrived completely, or are not answered yet.
    pub frames: usize,
    /// HTTP responses that clients have not read yet.
    pub responses: usize,
}

/// The budgets of one process.
#[derive(Clone, Debug)]
pub struct Memory {
    pub(crate) feeds: Budget,
    pub(crate) read_ahead: Budget,
    pub deliveries: Budget,
    pub frames: Budget,
    pub responses: Budget,
}

impl MemoryLimits {
    /// The same limit for every kind.
    #[must_use]
    pub const fn of_each(bytes: usize) -> Self {
        Self { feeds: bytes, read_ahead: bytes, deliveries: bytes, frames: bytes, responses: bytes }
    }
}

impl Memory {
    /// What every holder may have of a budget, so that none stalls when others hold the rest.
    pub const MINIMUM: usize = 16 << 10;

    pub(crate) fn new(limits: MemoryLimits) -> Self {
        let budget = |limit| Budget::new(limit, Self::MINIMUM);
        Self {
            // A feed without memory reads its events from the engine.
            feeds: Budget::new(limits.feeds, 0),
            // A group without memory reads one event at a time.
            read_ahead: Budget::new(limits.read_ahead, 0),
            deliveries: budget(limits.deliveries),
            frames: budget(limits.frames),
            responses: budget(limits.responses),
        }
    }

    /// The budgets by the name of their kind.
    pub(crate) const fn kinds(&self) -> [(&'static str, &Budget); 5] {
        let Self { feeds, read_ahead, deliveries, frames, responses } = self;
        [
            ("feeds", feeds),
            ("read_ahead", read_ahead),
            ("deliveries", deliveries),
            ("frames", frames),
            ("responses", responses),
        ]
    }
}

/// Returns what an allocation of `bytes` takes in jemalloc, which the server uses: between two powers of
/// two there are four size classes.
pub(crate) const fn allocated(bytes: usize) -> usize {
    const SMALLEST: usize = 16;
    let spacing = bytes.next_power_of_two() / 8;
    bytes.next_multiple_of(if spacing < SMALLEST { SMALLEST } else { spacing })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_are_rounded_up_to_size_classes() {
        for (bytes, class) in [
            (0, 0),
            (1, 16),
            (17, 32),
            (128, 128),
            (129, 160),
            (200, 224),
            (257, 320),
            (1025, 1280),
            (4000, 4096),
        ] {
            assert_eq!(allocated(bytes), class, "{bytes}");
        }
    }
}
