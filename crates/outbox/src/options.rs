//! Where the outbox is, and how it is worked on.

use std::fmt;
use std::time::Duration;

/// Where the outbox is.
#[derive(Clone)]
pub struct Place {
    /// A `mongodb://` address, as the driver reads it. It may hold a password, so it is never shown.
    pub url: String,
    /// The database; that of the address where this says nothing.
    pub database: Option<String>,
    /// The collection.
    pub collection: String,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place")
            .field("database", &self.database)
            .field("collection", &self.collection)
            .finish_non_exhaustive()
    }
}

/// How a worker works.
#[derive(Clone, Debug)]
pub struct WorkerOptions {
    /// Who it is, in `lease_owner`.
    pub name: String,
    /// How many documents are claimed at a time, 1 to 1000.
    pub batch: usize,
    /// How long they are its own, unless it says again that it is there.
    pub lease: Duration,
    /// How often is asked for new documents, and for leases that ended.
    pub poll: Duration,
    /// How new documents are noticed sooner than that.
    pub wake: Wake,
    /// After which time documents that are sent go by themselves; as before where this says nothing.
    pub keep_sent: Option<Duration>,
}

impl WorkerOptions {
    /// The usual options for a worker of this name.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            batch: 200,
            lease: Duration::from_secs(30),
            poll: Duration::from_secs(1),
            wake: Wake::ChangeStream,
            keep_sent: None,
        }
    }
}

/// How new documents are noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// By a change stream, and by asking.
    ChangeStream,
    /// By asking alone, for users that may not open change streams.
    Polling,
}

/// When a worker ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// When it is stopped.
    Stopped,
    /// When nothing is left that could be published, or when it is stopped.
    Drained,
}
