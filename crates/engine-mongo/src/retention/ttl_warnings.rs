//! What was said once need not be said every time.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// Topics that were warned of, with the number that was wrong.
#[derive(Debug, Default)]
pub(crate) struct Warned(Mutex<HashSet<(String, u64)>>);

impl Warned {
    /// Whether nobody was told yet.
    pub(crate) fn is_news(&self, topic: &str, number: u64) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.insert((topic.to_owned(), number))
    }
}
