//! Why members NACKed events, for dead letters whose last lease ended without a reason.

use std::collections::BTreeMap;

use prombus_proto::Seq;
use prombus_proto::limits::MAX_REASON_BYTES;

/// The last reasons of a group, in memory only: a restart forgets them, and its dead letters then say just how
/// the last lease ended.
#[derive(Debug, Default)]
pub(super) struct NackReasons(BTreeMap<Seq, Box<str>>);

/// Bounds the memory of a group to a megabyte.
const MAX_REASONS: usize = (1 << 20) / MAX_REASON_BYTES;

impl NackReasons {
    /// Keeps the reason for the last failure of `seq`. Events up to `floor` are done.
    pub(super) fn keep(&mut self, seq: Seq, reason: &str, floor: Seq) {
        if self.0.len() >= MAX_REASONS {
            self.0 = self.0.split_off(&floor.next());
        }
        if self.0.len() >= MAX_REASONS {
            self.0.pop_first();
        }
        let end = reason.floor_char_boundary(MAX_REASON_BYTES);
        self.0.insert(seq, reason[..end].into());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets the reason for an event that is done.
    pub(super) fn forget(&mut self, seq: Seq) {
        self.0.remove(&seq);
    }

    pub(super) fn get(&self, seq: Seq) -> Option<&str> {
        self.0.get(&seq).map(AsRef::as_ref)
    }

    pub(super) fn take(&mut self, seq: Seq) -> Option<Box<str>> {
        self.0.remove(&seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_reasons_is_bounded() {
        let mut reasons = NackReasons::default();
        let longer = "x".repeat(MAX_REASON_BYTES + 1);
        for seq in 1..=3 * MAX_REASONS as u64 {
            reasons.keep(Seq(seq), &longer, Seq::ZERO);
        }
        assert_eq!(reasons.0.len(), MAX_REASONS);
        assert_eq!(reasons.take(Seq(1)), None);
        let newest = reasons.take(Seq(3 * MAX_REASONS as u64)).unwrap();
        assert_eq!(newest.len(), MAX_REASON_BYTES);
        reasons.keep(Seq(1), "full again", Seq::ZERO);
        reasons.keep(Seq(2), "all below are done", Seq(2 * MAX_REASONS as u64 + 10));
        assert_eq!(reasons.0.len(), MAX_REASONS - 10);
    }
}
