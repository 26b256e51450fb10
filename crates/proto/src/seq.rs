//! An event's place in its topic.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The place of an event in its topic: 1 for the first, no holes after it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seq(pub u64);

impl Seq {
    /// Before the first event: the last `Seq` of a topic that has none.
    pub const ZERO: Seq = Seq(0);
    /// The first event of every topic.
    pub const FIRST: Seq = Seq(1);

    /// The place right behind this one.
    #[must_use]
    pub const fn next(self) -> Seq {
        Seq(self.0 + 1)
    }

    /// The place `count` behind this one.
    #[must_use]
    pub const fn plus(self, count: u64) -> Seq {
        Seq(self.0 + count)
    }

    /// The place right before this one; of `ZERO`, `ZERO`.
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
