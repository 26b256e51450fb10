//! A queue that grows without moving its elements.

use std::collections::VecDeque;
use std::ops::Index;

/// Elements per chunk: enough to make a new chunk cheap, few enough that an empty one wastes little.
const CHUNK: usize = 1024;

/// A queue in chunks. A single buffer is copied into fresh memory whenever it is full, which made
/// publishing 8 % slower.
#[derive(Debug)]
pub(super) struct Chunks<T> {
    /// No chunk is empty. The first may have been consumed in part; all between the first and the
    /// last are full.
    chunks: VecDeque<VecDeque<T>>,
    len: usize,
}

impl<T> Default for Chunks<T> {
    fn default() -> Self {
        Self { chunks: VecDeque::new(), len: 0 }
    }
}

impl<T> Chunks<T> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn push_back(&mut self, value: T) {
        self.len += 1;
        match self.chunks.back_mut().filter(|last| last.len() < CHUNK) {
            Some(last) => last.push_back(value),
            None => {
                // A queue with few elements should not take a whole chunk.
                let room = if self.chunks.is_empty() { 0 } else { CHUNK };
                let mut chunk = VecDeque::with_capacity(room);
                chunk.push_back(value);
                self.chunks.push_back(chunk);
            }
        }
    }

    pub(super) fn front(&self) -> Option<&T> {
        self.chunks.front()?.front()
    }

    pub(super) fn pop_front(&mut self) -> Option<T> {
        let first = self.chunks.front_mut()?;
        let value = first.pop_front();
        if first.is_empty() {
            self.chunks.pop_front();
        }
        self.len -= 1;
        value
    }

    /// Iterates over the elements from index `start` on.
    pub(super) fn from(&self, start: usize) -> impl Iterator<Item = &T> {
        (start..self.len).map(|index| &self[index])
    }

    /// Returns the element with this key. Keys must increase from front to back.
    pub(super) fn find_by_key<K: Ord>(&self, key: &K, key_of: impl Fn(&T) -> K) -> Option<&T> {
        let ends_below = |chunk: &VecDeque<T>| chunk.back().is_some_and(|last| key_of(last) < *key);
        let chunk = self.chunks.get(self.chunks.partition_point(ends_below))?;
        chunk.binary_search_by_key(key, &key_of).ok().map(|index| &chunk[index])
    }
}

impl<T> Index<usize> for Chunks<T> {
    type Output = T;

    fn index(&self, index: usize) -> &T {
        let in_first = self.chunks.front().map_or(0, VecDeque::len);
        match index.checked_sub(in_first) {
            None => &self.chunks[0][index],
            Some(rest) => &self.chunks[1 + rest / CHUNK][rest % CHUNK],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behaves_like_a_single_queue_across_chunks() {
        let (mut chunks, mut buffer) = (Chunks::default(), VecDeque::new());
        let mut next = 0u64;
        for (pushed, popped) in [(1, 1), (3, 2), (CHUNK, 700), (3 * CHUNK, 2 * CHUNK), (10, 9999)] {
            for _ in 0..pushed {
                chunks.push_back(next);
                buffer.push_back(next);
                next += 3;
            }
            assert_same(&chunks, &buffer);
            for _ in 0..popped {
                assert_eq!(chunks.pop_front(), buffer.pop_front());
            }
            assert_same(&chunks, &buffer);
        }
        assert_eq!(chunks.len(), 0);
    }

    fn assert_same(chunks: &Chunks<u64>, buffer: &VecDeque<u64>) {
        assert_eq!(chunks.len(), buffer.len());
        assert_eq!(chunks.front(), buffer.front());
        for start in [0, 1, CHUNK - 1, CHUNK, buffer.len()] {
            let start = start.min(buffer.len());
            assert!(chunks.from(start).eq(buffer.range(start..)), "from {start}");
        }
        for value in buffer {
            assert_eq!(chunks.find_by_key(value, |found| *found), Some(value));
            assert_eq!(chunks.find_by_key(&(value + 1), |found| *found), None);
        }
    }
}
