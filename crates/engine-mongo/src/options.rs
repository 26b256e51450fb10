//! The options that an engine is opened with.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prombus_engine::StateKind;
use prombus_proto::{Clock, RandomSource, SystemClock, SystemRandom};

/// How to open a [`MongoEngine`](crate::MongoEngine).
#[derive(Clone)]
pub struct MongoOptions {
    /// A `mongodb://` URL. It may contain a password, so `Debug` leaves it out.
    pub url: String,
    /// The kinds of keyed state that other programs read. Must be the same for all users of a
    /// database.
    pub state_kinds: &'static [StateKind],
    /// The database; `None` means the database of the URL, or `prombus` if the URL names none.
    pub database: Option<String>,
    /// The clock by which keyed state expires.
    pub clock: Arc<dyn Clock>,
    /// Randomness for the pauses between retries.
    pub random: Arc<dyn RandomSource>,
    pub change_detection: ChangeDetection,
    /// The polling interval while there is no change stream.
    pub poll_every: Duration,
}

/// How an engine notices what other gateways wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeDetection {
    /// A change stream; polling while none can be opened.
    ChangeStream,
    /// Polling only, for users without the right to open change streams.
    Polling,
}

impl MongoOptions {
    /// The default options for the deployment at `url`.
    #[must_use]
    pub fn at(url: impl Into<String>, state_kinds: &'static [StateKind]) -> Self {
        Self {
            url: url.into(),
            state_kinds,
            database: None,
            clock: Arc::new(SystemClock),
            random: Arc::new(SystemRandom),
            change_detection: ChangeDetection::ChangeStream,
            poll_every: Duration::from_millis(200),
        }
    }
}

impl fmt::Debug for MongoOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MongoOptions")
            .field("database", &self.database)
            .field("change_detection", &self.change_detection)
            .field("poll_every", &self.poll_every)
            .finish_non_exhaustive()
    }
}
