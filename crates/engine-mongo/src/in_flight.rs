//! Who is inside when an engine closes is waited for; who comes later is turned away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use prombus_engine::Unavailable;
use tokio::sync::{OwnedRwLockReadGuard, RwLock};

/// The way into an engine.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    is_closed: AtomicBool,
    inside: Arc<RwLock<()>>,
}

/// Somebody inside, until it is dropped.
pub(crate) type Inside = OwnedRwLockReadGuard<()>;

impl Gate {
    pub(crate) async fn enter(&self) -> Result<Inside, Unavailable> {
        let inside = self.inside.clone().read_owned().await;
        match self.is_closed() {
            false => Ok(inside),
            true => Err(Unavailable::Closed),
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// Lets nobody in any more and waits until nobody is inside. Says whether it was the first to.
    pub(crate) async fn close(&self) -> bool {
        let was_closed = self.is_closed.swap(true, Ordering::SeqCst);
        drop(self.inside.write().await);
        !was_closed
    }
}
