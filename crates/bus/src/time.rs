//! The monotonic clock of the bus.

use std::time::Instant;

/// Returns the current time of the runtime, which tests can pause and advance.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
