//! Rate limits of topics, and the refusals of all limits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prombus_proto::ErrorCode;

use crate::error::Refusal;
use crate::limits::{Deficit, Rate, TokenBucket};

/// A shared token bucket, or no limit.
#[derive(Clone, Debug)]
pub struct RateLimit(Option<Arc<Mutex<TokenBucket>>>);

/// A snapshot of a rate limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitStatus {
    pub rate: Rate,
    /// Whole tokens in the bucket.
    pub available: u64,
}

/// The shortest time after which a client is told to retry.
pub(crate) const SHORTEST_WAIT: Duration = Duration::from_millis(1);

/// What a rate limit applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LimitScope {
    Connection,
    /// All connections of one token, subject or address.
    Principal,
    Topic,
    /// Bytes that a connection publishes.
    ConnectionBytes,
    /// Bytes that all connections of a principal publish.
    PrincipalBytes,
}

impl RateLimit {
    /// Returns a limit of `rate`, or no limit if it is `None`.
    #[must_use]
    pub fn new(rate: Option<Rate>, now: Instant) -> Self {
        Self(rate.map(|rate| Arc::new(Mutex::new(TokenBucket::full(rate, now)))))
    }

    /// Takes `count` tokens, or none.
    ///
    /// # Errors
    ///
    /// The deficit, if there are fewer tokens.
    pub fn try_consume(&self, count: u64, now: Instant) -> Result<(), Deficit> {
        self.with(|bucket| bucket.try_consume(count, now)).unwrap_or(Ok(()))
    }

    /// Returns `count` tokens that were not used.
    pub fn give_back(&self, count: u64) {
        self.with(|bucket| bucket.give_back(count));
    }

    pub(crate) const fn is_off(&self) -> bool {
        self.0.is_none()
    }

    /// Returns whether the bucket is full, which is always true without a limit.
    #[must_use]
    pub fn is_full(&self, now: Instant) -> bool {
        self.with(|bucket| bucket.is_full(now)).unwrap_or(true)
    }

    /// Changes the rate. Has no effect without a limit.
    pub fn set_rate(&self, rate: Rate, now: Instant) {
        self.with(|bucket| bucket.set_rate(rate, now));
    }

    /// Returns the current status, or `None` without a limit.
    #[must_use]
    pub fn status(&self, now: Instant) -> Option<LimitStatus> {
        self.with(|bucket| LimitStatus { rate: bucket.rate(), available: bucket.available(now) })
    }

    fn with<T>(&self, act: impl FnOnce(&mut TokenBucket) -> T) -> Option<T> {
        let bucket = self.0.as_ref()?;
        Some(act(&mut bucket.lock()))
    }
}

/// What exceeds a rate limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limited {
    pub(crate) scope: LimitScope,
    pub(crate) deficit: Deficit,
}

impl Limited {
    /// Returns the one of the two that lasts longer.
    pub(super) fn longer(known: Option<Self>, other: Self) -> Option<Self> {
        let is_longer = match (known.map(|known| known.deficit), other.deficit) {
            (None, _) => true,
            (Some(Deficit::Never), _) => false,
            (Some(Deficit::Wait(_)), Deficit::Never) => true,
            (Some(Deficit::Wait(known)), Deficit::Wait(other)) => other > known,
        };
        if is_longer { Some(other) } else { known }
    }
}

impl From<Limited> for Refusal {
    fn from(Limited { scope, deficit }: Limited) -> Self {
        scope.refusal(deficit)
    }
}

impl LimitScope {
    pub(crate) const ALL: [Self; 5] = [
        Self::Connection,
        Self::Principal,
        Self::Topic,
        Self::ConnectionBytes,
        Self::PrincipalBytes,
    ];

    /// Returns the label in the metrics.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Principal => "principal",
            Self::Topic => "topic",
            Self::ConnectionBytes => "connection_bytes",
            Self::PrincipalBytes => "principal_bytes",
        }
    }

    /// Returns the setting to change, for messages.
    pub(crate) const fn setting(self) -> &'static str {
        match self {
            Self::Connection => "limits.connection",
            Self::Principal => "limits.principal",
            Self::Topic => "the limit of the topic, or limits.topic",
            Self::ConnectionBytes | Self::PrincipalBytes => "limits.connection.bytes_per_sec",
        }
    }

    pub(crate) const fn limited(self, deficit: Deficit) -> Limited {
        Limited { scope: self, deficit }
    }

    /// Returns the refusal of a publish. It has no retry time if waiting does not help: the publish asks
    /// for more tokens than the bucket ever holds.
    #[must_use]
    pub fn refusal(self, deficit: Deficit) -> Refusal {
        let message = match self {
            LimitScope::Connection => "conn publish rate exceeded",
            LimitScope::Principal => "principal publish rate exceeded",
            LimitScope::Topic => "topic publish rate exceeded",
            LimitScope::ConnectionBytes => "conn publish byte rate exceeded",
            LimitScope::PrincipalBytes => "principal publish byte rate exceeded",
        };
        let retry_after = match deficit {
            Deficit::Wait(time) => Some(time.max(SHORTEST_WAIT)),
            Deficit::Never => None,
        };
        Refusal { retry_after, ..Refusal::new(ErrorCode::RateLimited, message) }
    }
}
