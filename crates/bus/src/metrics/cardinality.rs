//! Bounds the number of label values: the server and its monitoring keep every series forever.

use std::collections::HashSet;
use std::hash::Hash;

use parking_lot::Mutex;

/// Admits the first `max` names. An admitted name stays while what it names exists: a counter must not restart,
/// nor continue under another label.
#[derive(Debug)]
pub(super) struct CardinalityLimit<T> {
    max: usize,
    admitted: Mutex<HashSet<T>>,
}

impl<T: Clone + Eq + Hash> CardinalityLimit<T> {
    pub(super) fn new(max: usize) -> Self {
        Self { max, admitted: Mutex::default() }
    }

    /// Returns `true` if `name` has series of its own. Admits it while there is room.
    pub(super) fn admit(&self, name: &T) -> bool {
        let mut admitted = self.admitted.lock();
        if admitted.contains(name) {
            return true;
        }
        admitted.len() < self.max && admitted.insert(name.clone())
    }

    /// Removes and returns the admitted names of what exists no more.
    pub(super) fn take(&self, is_gone: impl Fn(&T) -> bool) -> Vec<T> {
        self.admitted.lock().extract_if(|name| is_gone(name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admits_the_first_names_and_keeps_them() {
        let limit = CardinalityLimit::new(2);
        assert!(limit.admit(&"a") && limit.admit(&"b"));
        assert!(!limit.admit(&"c"));
        assert!(limit.admit(&"a") && limit.admit(&"b"));
        assert!(!limit.admit(&"c"));
    }
}
