//! The JSON of a topic's events, one behind the other in pages.

use bytes::{Bytes, BytesMut};

/// A page of a topic that has much. The first ones are smaller: there may be many topics with little.
const LARGEST_PAGE: usize = 256 << 10;
const SMALLEST_PAGE: usize = 1 << 10;

/// Where the JSON of the next events goes.
///
/// An allocation for each would be made where the event comes from and stay as long as the event does: always in
/// memory that is new to the process. Copied from there, the first one is soon used again.
#[derive(Debug, Default)]
pub(super) struct JsonPages {
    /// What is left of the newest page.
    room: BytesMut,
    /// All that was ever written.
    written: usize,
}

impl JsonPages {
    /// Keeps what `write` appends, which is at most `bytes` long. A page lasts as long as any part of it.
    pub(super) fn keep(&mut self, bytes: usize, write: impl FnOnce(&mut BytesMut)) -> Bytes {
        if self.room.capacity() < bytes {
            let page = self.written.clamp(SMALLEST_PAGE, LARGEST_PAGE);
            self.room = BytesMut::with_capacity(page.max(bytes));
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
    fn all_stays_as_it_was_and_little_takes_a_small_page() {
        let mut pages = JsonPages::default();
        let texts: Vec<Vec<u8>> = (1..40u8).map(|n| vec![n; 40 * usize::from(n) % 3000]).collect();
        let long = vec![7; 2 * LARGEST_PAGE];
        let mut kept = Vec::new();
        for text in texts.iter().chain([&long]).chain(&texts) {
            kept.push(pages.keep(text.len(), |page| page.extend_from_slice(text)));
            assert!(pages.room.capacity() <= pages.written.max(SMALLEST_PAGE));
        }
        assert!(kept.iter().eq(texts.iter().chain([&long]).chain(&texts)));
        assert!(pages.room.capacity() <= LARGEST_PAGE);
    }
}
