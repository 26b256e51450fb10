//! Whether the lease of an event is lost while its handler runs.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Shared between a handler and the session, which extends the lease.
#[derive(Debug, Default)]
pub(crate) struct LeaseStatus {
    is_lost: AtomicBool,
    changed: Notify,
}

impl LeaseStatus {
    pub(crate) fn lose(&self) {
        self.is_lost.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }

    /// The event was redelivered here while its handler ran.
    pub(crate) fn regain(&self) {
        self.is_lost.store(false, Ordering::Release);
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }

    pub(crate) async fn lost(&self) {
        loop {
            let changed = self.changed.notified();
            if self.is_lost() {
                return;
            }
            changed.await;
        }
    }
}
