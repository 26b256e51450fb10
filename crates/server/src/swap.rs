//! A value that is replaced while others use it.

use std::sync::Arc;

use parking_lot::RwLock;

/// Readers keep the value that they loaded.
#[derive(Debug)]
pub(crate) struct Swap<T>(RwLock<Arc<T>>);

impl<T> Swap<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(RwLock::new(Arc::new(value)))
    }

    #[must_use]
    pub(crate) fn load(&self) -> Arc<T> {
        Arc::clone(&self.0.read())
    }

    pub(crate) fn store(&self, value: T) {
        *self.0.write() = Arc::new(value);
    }
}
