//! Consecutive records of one topic, on their way into a segment.

use std::io;

use prombus_proto::{Seq, Timestamp};

use super::Segment;
use crate::disk::record::{self, Record, RecordFault, RecordSeed};
use crate::disk::wal::WalExtent;

/// What is known about the records `first` to `last`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordBlock {
    pub(crate) first: Seq,
    pub(crate) last: Seq,
    pub(crate) arrived: Timestamp,
    /// The newest monotonic id of the topic before these records.
    pub(crate) newest_id_before: u128,
    /// The same, these included.
    pub(crate) newest_id: u128,
}

impl From<&WalExtent> for RecordBlock {
    fn from(extent: &WalExtent) -> Self {
        Self {
            first: extent.first,
            last: extent.last(),
            arrived: extent.arrived,
            newest_id_before: extent.newest_id_before,
            newest_id: extent.newest_id,
        }
    }
}

impl From<&Segment> for RecordBlock {
    fn from(segment: &Segment) -> Self {
        Self {
            first: segment.first,
            last: segment.last,
            arrived: segment.arrived,
            newest_id_before: segment.newest_id_before,
            newest_id: segment.newest_id,
        }
    }
}

/// Events that cannot be read back from where they are now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DamagedRange {
    pub(crate) first: Seq,
    pub(crate) last: Seq,
}

/// Passes the records of `block`, whose content is `bytes`, to `visit`. Returns the damaged ones.
pub(crate) fn for_each_record(
    seed: RecordSeed,
    block: &RecordBlock,
    bytes: &[u8],
    mut visit: impl FnMut(&Record<'_>, &[u8]) -> io::Result<()>,
) -> io::Result<Vec<DamagedRange>> {
    let mut damaged = Vec::new();
    let mut at = 0;
    let mut expected = block.first;
    while expected <= block.last {
        let found = match record::decode(seed, &bytes[at..]) {
            Ok(found) => found,
            Err(fault) => {
                let (first, next) = (expected, next_record(seed, bytes, at, expected, fault));
                (at, expected) = next.unwrap_or((bytes.len(), block.last.next()));
                damaged.push(DamagedRange { first, last: expected.previous() });
                continue;
            }
        };
        let length = found.total_bytes();
        visit(&found, &bytes[at..at + length])?;
        at += length;
        expected = expected.next();
    }
    Ok(damaged)
}

/// Returns the offset and `seq` of the record after a damaged one, if its length is right.
fn next_record(
    seed: RecordSeed,
    bytes: &[u8],
    at: usize,
    damaged: Seq,
    fault: RecordFault,
) -> Option<(usize, Seq)> {
    let RecordFault::Damaged { plausible_bytes: Some(length) } = fault else { return None };
    let next = record::decode(seed, bytes.get(at + length..)?).ok()?;
    (next.seq == damaged.next()).then_some((at + length, next.seq))
}
