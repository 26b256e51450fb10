//! Calls in flight: closing an engine waits for them and rejects new ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use prombus_engine::Unavailable;
use tokio::sync::{OwnedRwLockReadGuard, RwLock};

#[derive(Debug, Default)]
pub(crate) struct InFlight {
    is_closed: AtomicBool,
    /// Every call holds the lock for reading; closing acquires it for writing.
    calls: Arc<RwLock<()>>,
}

/// Keeps an engine open until it is dropped.
pub(crate) type CallGuard = OwnedRwLockReadGuard<()>;

impl InFlight {
    pub(crate) async fn start(&self) -> Result<CallGuard, Unavailable> {
        let guard = self.calls.clone().read_owned().await;
        match self.is_closed() {
            false => Ok(guard),
            true => Err(Unavailable::Closed),
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// Rejects new calls and waits for those in flight. Returns `true` the first time it is called.
    pub(crate) async fn close(&self) -> bool {
        let was_closed = self.is_closed.swap(true, Ordering::SeqCst);
        drop(self.calls.write().await);
        !was_closed
    }
}
