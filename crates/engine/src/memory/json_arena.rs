//! The memory that the JSON of a topic's events is copied into.

use bytes::{Bytes, BytesMut};

// Blocks grow with the topic: there may be many topics with little data.
const MAX_BLOCK: usize = 256 << 10;
const MIN_BLOCK: usize = 1 << 10;

/// Packs the JSON of events into large blocks.
///
/// If each event kept the allocation that its publisher made, publishers would always allocate fresh
/// memory. With a copy in a block, the publisher's allocation is reused at once.
#[derive(Debug, Default)]
pub(super) struct JsonArena {
    /// The free rest of the newest block.
    room: BytesMut,
    /// Bytes written in total.
    written: usize,
}

impl JsonArena {
    /// Stores what `write` appends, at most `bytes`. A block is freed when nothing refers to it.
    pub(super) fn append(&mut self, bytes: usize, write: impl FnOnce(&mut BytesMut)) -> Bytes {
        if self.room.capacity() < bytes {
            let block = self.written.clamp(MIN_BLOCK, MAX_BLOCK);
            self.room = BytesMut::with_capacity(block.max(bytes));
        }
        write(&mut self.room);
        self.written += self.room.len();
        self.room.split().freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_json_never_changes_and_small_topics_take_small_blocks() {
        let mut arena = JsonArena::default();
        let texts: Vec<Vec<u8>> = (1..40u8).map(|n| vec![n; 40 * usize::from(n) % 3000]).collect();
        let long = vec![7; 2 * MAX_BLOCK];
        let mut stored = Vec::new();
        for text in texts.iter().chain([&long]).chain(&texts) {
            stored.push(arena.append(text.len(), |block| block.extend_from_slice(text)));
            assert!(arena.room.capacity() <= arena.written.max(MIN_BLOCK));
        }
        assert!(stored.iter().eq(texts.iter().chain([&long]).chain(&texts)));
        assert!(arena.room.capacity() <= MAX_BLOCK);
    }
}
