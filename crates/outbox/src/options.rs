//! Where the outbox is, and how a worker processes it.

use std::fmt;
use std::time::Duration;

use prombus_engine_mongo::ChangeDetection;

/// The collection of an outbox.
#[derive(Clone)]
pub struct OutboxLocation {
    /// A `mongodb://` URL. It may contain a password, so `Debug` leaves it out.
    pub url: String,
    /// The database; `None` means the database of the URL.
    pub database: Option<String>,
    pub collection: String,
}

impl fmt::Debug for OutboxLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutboxLocation")
            .field("database", &self.database)
            .field("collection", &self.collection)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Debug)]
pub struct WorkerOptions {
    /// The name of the worker, stored in `lease_owner`.
    pub name: String,
    /// How many documents to claim at a time, 1 to 1000.
    pub batch: usize,
    /// How long a claim lasts unless it is renewed.
    pub lease: Duration,
    /// How often to poll for new documents and for expired claims.
    pub poll: Duration,
    /// How to notice new documents between polls.
    pub change_detection: ChangeDetection,
    /// How long after sending documents are deleted; `None` leaves the setting as it is.
    pub keep_sent: Option<Duration>,
}

impl WorkerOptions {
    /// The default options for a worker of this name.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            batch: 200,
            lease: Duration::from_secs(30),
            poll: Duration::from_secs(1),
            change_detection: ChangeDetection::ChangeStream,
            keep_sent: None,
        }
    }
}

/// When a worker finishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// When it is stopped.
    Stopped,
    /// When it is stopped, or nothing is left to publish.
    Drained,
}
