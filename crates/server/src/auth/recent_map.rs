//! A bounded map of what was used lately.

use std::collections::HashMap;
use std::hash::Hash;
use std::mem;

/// Forgets the entries that were not used while `capacity` others were. Holds at most twice as many.
///
/// Two generations instead of a list by age: every operation takes constant time.
#[derive(Debug)]
pub(super) struct RecentMap<K, V> {
    current: HashMap<K, V>,
    previous: HashMap<K, V>,
    capacity: usize,
}

impl<K: Eq + Hash, V> RecentMap<K, V> {
    pub(super) fn new(capacity: usize) -> Self {
        Self { current: HashMap::new(), previous: HashMap::new(), capacity }
    }

    /// Returns the value of `key`, which counts as its use.
    pub(super) fn get(&mut self, key: &K) -> Option<&mut V> {
        if !self.current.contains_key(key) {
            let (key, value) = self.previous.remove_entry(key)?;
            self.insert(key, value);
        }
        self.current.get_mut(key)
    }

    pub(super) fn insert(&mut self, key: K, value: V) {
        if self.current.len() >= self.capacity && !self.current.contains_key(&key) {
            self.previous = mem::take(&mut self.current);
        }
        self.current.insert(key, value);
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.current.len() + self.previous.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_is_used_and_forgets_the_rest() {
        let mut map = RecentMap::new(10);
        map.insert(0, "used");
        map.insert(1, "unused");
        for key in 2..1000 {
            map.insert(key, "other");
            assert_eq!(map.get(&0), Some(&mut "used"));
            assert!(map.len() <= 20);
        }
        assert_eq!(map.get(&1), None);
        assert_eq!(map.get(&999), Some(&mut "other"));
    }
}
