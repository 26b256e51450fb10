//! The rate limits: one bucket per connection, one per topic.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use prombus_proto::ErrorCode;

use crate::error::Refusal;
use crate::limits::{Deficit, Rate, TokenBucket};

/// A bucket that several share, or no limit at all.
#[derive(Clone, Debug)]
pub struct Limit(Option<Arc<Mutex<TokenBucket>>>);

/// How a limit stands at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// What it lets pass.
    pub rate: Rate,
    /// How many tokens can be taken at once.
    pub available: u64,
}

/// Nobody is told to come again sooner.
pub(crate) const SHORTEST_WAIT: Duration = Duration::from_millis(1);

/// Whose limit it is, as a refusal names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One connection.
    Connection,
    /// One topic.
    Topic,
}

impl Limit {
    /// A limit of `rate`, or none.
    #[must_use]
    pub fn new(rate: Option<Rate>, now: Instant) -> Self {
        Self(rate.map(|rate| Arc::new(Mutex::new(TokenBucket::full(rate, now)))))
    }

    /// Takes `count` tokens or says how far it is from that.
    pub fn try_consume(&self, count: u64, now: Instant) -> Result<(), Deficit> {
        self.with(|bucket| bucket.try_consume(count, now)).unwrap_or(Ok(()))
    }

    /// Puts back what was taken for nothing.
    pub fn give_back(&self, count: u64) {
        self.with(|bucket| bucket.give_back(count));
    }

    /// Whether nothing was taken that has not flowed in again.
    #[must_use]
    pub fn is_full(&self, now: Instant) -> bool {
        self.with(|bucket| bucket.is_full(now)).unwrap_or(true)
    }

    /// From now on it lets pass what `rate` says. One that is off stays off.
    pub fn set_rate(&self, rate: Rate, now: Instant) {
        self.with(|bucket| bucket.set_rate(rate, now));
    }

    /// How it stands; nothing where there is no limit.
    #[must_use]
    pub fn standing(&self, now: Instant) -> Option<Standing> {
        self.with(|bucket| Standing { rate: bucket.rate(), available: bucket.available(now) })
    }

    fn with<T>(&self, act: impl FnOnce(&mut TokenBucket) -> T) -> Option<T> {
        let bucket = self.0.as_ref()?;
        Some(act(&mut bucket.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// A publish that a limit stops: whose, and how far it is from passing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limited {
    pub(crate) scope: Scope,
    pub(crate) deficit: Deficit,
}

impl From<Limited> for Refusal {
    fn from(Limited { scope, deficit }: Limited) -> Self {
        scope.refusal(deficit)
    }
}

impl Scope {
    pub(crate) const fn limited(self, deficit: Deficit) -> Limited {
        Limited { scope: self, deficit }
    }

    /// The refusal of a publish. Without a time to try again where no time helps: more was asked
    /// for at once than the bucket ever holds.
    #[must_use]
    pub fn refusal(self, deficit: Deficit) -> Refusal {
        let message = match self {
            Scope::Connection => "conn publish rate exceeded",
            Scope::Topic => "topic publish rate exceeded",
        };
        let retry_after = match deficit {
            Deficit::Wait(time) => Some(time.max(SHORTEST_WAIT)),
            Deficit::Never => None,
        };
        Refusal { retry_after, ..Refusal::new(ErrorCode::RateLimited, message) }
    }
}
