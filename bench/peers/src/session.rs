//! What the measurements ask of every system: a publisher and a subscriber, each on a connection of its own.

use std::error::Error;
use std::ops::Range;

/// What goes wrong is named in the report.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Publishes events and hears that they are taken.
///
/// What waits can be dropped at any time without losing an answer.
pub(crate) trait Publisher {
    /// Publishes the events of these numbers: one by itself, several all or none. May wait for `flush`.
    async fn publish(&mut self, numbers: Range<u64>) -> Result<()>;

    /// Sends what waits.
    async fn flush(&mut self) -> Result<()>;

    /// Waits for an answer, and takes all that are there; says how many events they are about.
    async fn answered(&mut self) -> Result<u64>;
}

/// Gets events from the first one on, and acknowledges each of them.
///
/// `delivered` can be dropped at any time without losing an event.
pub(crate) trait Subscriber {
    /// Waits for an event, and takes all that are there; adds their numbers.
    async fn delivered(&mut self, numbers: &mut Vec<u64>) -> Result<()>;

    /// Acknowledges each event of the last `delivered` by itself, and sends that.
    async fn acknowledge(&mut self) -> Result<()>;

    /// Waits until the server has taken all acknowledgements.
    async fn settled(&mut self) -> Result<()>;
}
