//! What the workloads require of every system: a publisher and a subscriber, each on its own connection.

use std::error::Error;
use std::ops::Range;

/// Errors are only shown in the report.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Publishes events and receives their confirmations.
///
/// All futures can be dropped at any time without losing a confirmation.
pub(crate) trait Publisher {
    /// Publishes the events with these numbers: a single one, or several all or none. May be buffered until `flush`.
    async fn publish(&mut self, numbers: Range<u64>) -> Result<()>;

    async fn flush(&mut self) -> Result<()>;

    /// Waits for a confirmation, takes all that have arrived, and returns the number of events they confirm.
    async fn confirmed(&mut self) -> Result<u64>;
}

/// Receives events from the first one on, and acknowledges each of them.
///
/// The future of `receive` can be dropped at any time without losing an event.
pub(crate) trait Subscriber {
    /// Waits for an event, takes all that have arrived, and appends their numbers.
    async fn receive(&mut self, numbers: &mut Vec<u64>) -> Result<()>;

    /// Acknowledges each event of the last `receive` individually, and flushes.
    async fn acknowledge(&mut self) -> Result<()>;

    /// Waits until the server has processed all acknowledgements.
    async fn wait_for_acks(&mut self) -> Result<()>;
}
