//! Who has series of its own: each is kept for ever, by us and by those who watch.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};

/// The first so many that came. Nobody leaves again: a counter must not begin anew, nor what was
/// counted under one name go on under another.
#[derive(Debug)]
pub(super) struct Admitted<T> {
    most: usize,
    known: Mutex<HashSet<T>>,
}

impl<T: Clone + Eq + Hash> Admitted<T> {
    pub(super) fn at_most(most: usize) -> Self {
        Self { most, known: Mutex::default() }
    }

    /// Whether `name` is one of them; it becomes one while there is room.
    pub(super) fn admit(&self, name: &T) -> bool {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.contains(name) {
            return true;
        }
        known.len() < self.most && known.insert(name.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_stay_and_nobody_else_comes() {
        let admitted = Admitted::at_most(2);
        assert!(admitted.admit(&"a") && admitted.admit(&"b"));
        assert!(!admitted.admit(&"c"));
        assert!(admitted.admit(&"a") && admitted.admit(&"b"));
        assert!(!admitted.admit(&"c"));
    }
}
