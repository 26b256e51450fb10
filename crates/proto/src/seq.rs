//! The position of an event in its topic.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The position of an event in its topic, counted from 1 without gaps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seq(pub u64);

impl Seq {
    /// The position before the first event: the last `Seq` of a topic that never had one.
    pub const ZERO: Seq = Seq(0);
    /// The position of the first event of every topic.
    pub const FIRST: Seq = Seq(1);

    /// Returns the next position.
    #[must_use]
    pub const fn next(self) -> Seq {
        Seq(self.0 + 1)
    }

    /// Returns the position `count` events later.
    #[must_use]
    pub const fn plus(self, count: u64) -> Seq {
        Seq(self.0 + count)
    }

    /// Returns the previous position, saturating at [`Seq::ZERO`].
    #[must_use]
    pub const fn previous(self) -> Seq {
        Seq(self.0.saturating_sub(1))
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}
