//! The clocks of the bus.

use std::time::Instant;

use prombus_proto::Timestamp;

/// One moment on the monotonic clock and on the wall clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) instant: Instant,
    pub(crate) timestamp: Timestamp,
}

/// Returns the current time of the runtime, which tests can pause and advance.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
