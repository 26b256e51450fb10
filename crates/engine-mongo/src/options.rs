//! What to connect to, and how.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prombus_proto::{Clock, RandomSource, SystemClock, SystemRandom};

/// How an engine is opened.
#[derive(Clone)]
pub struct MongoOptions {
    /// A `mongodb://` address, as the driver reads it. It may hold a password, so it is never shown.
    pub url: String,
    /// The database; that of the address, or else `prombus`, where this says nothing.
    pub database: Option<String>,
    /// What time it is, for what expires.
    pub clock: Arc<dyn Clock>,
    /// How long to wait before trying again what another gateway was first with.
    pub random: Arc<dyn RandomSource>,
    /// How what other gateways wrote is noticed.
    pub tail: Tail,
    /// How often is asked for what other gateways wrote, where there is no change stream.
    pub poll_every: Duration,
}

/// How what other gateways wrote is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// By a change stream, and by asking while there is none.
    ChangeStream,
    /// By asking, for users that may not open change streams.
    Polling,
}

impl MongoOptions {
    /// The usual options for what is at `url`.
    #[must_use]
    pub fn at(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            database: None,
            clock: Arc::new(SystemClock),
            random: Arc::new(SystemRandom),
            tail: Tail::ChangeStream,
            poll_every: Duration::from_millis(200),
        }
    }
}

impl fmt::Debug for MongoOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MongoOptions")
            .field("database", &self.database)
            .field("tail", &self.tail)
            .field("poll_every", &self.poll_every)
            .finish_non_exhaustive()
    }
}
