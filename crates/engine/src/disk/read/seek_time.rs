//! Finds the first event at or after a time.

use std::io;

use prombus_proto::{Seq, Timestamp, Topic};

use super::events::read;
use super::fault::{ReadFault, was_removed};
use crate::disk::record::RecordSeed;
use crate::disk::record::walk::WalkItem;
use crate::disk::segment::Segment;
use crate::disk::segment::reader::SegmentReader;
use crate::disk::shared::Shared;
use crate::disk::wal::WalExtent;
use crate::{Damaged, ReadBudget, ReadError};

/// Implements [`crate::Engine::seek_time`].
pub(crate) fn seek_time(shared: &Shared, topic: &Topic, ts: Timestamp) -> Result<Seq, ReadError> {
    loop {
        let (segment, first, next, seed, extents) = {
            let view = shared.view();
            let Some(view) = view.topics.get(topic).filter(|view| !view.is_deleted) else {
                return Ok(Seq::FIRST);
            };
            let segment = view.segment_reaching(ts).map(|index| view.segments[index]);
            // The event that reaches `ts` may have been trimmed from the first extent. The second
            // one is untrimmed.
            let reaching = view.wal.iter().filter(|extent| extent.latest_ts >= ts);
            let extents: Vec<_> = reaching.take(2).cloned().collect();
            (segment, view.first, view.next, view.record_seed, extents)
        };
        if let Some(segment) = segment {
            match seek_in_segments(shared, topic, seed, &segment, first, ts) {
                Ok(Some(seq)) => return Ok(seq),
                Ok(None) => {}
                // A segment was trimmed or moved in the meantime.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => {
                    let path = shared.layout.file_of(topic, &segment);
                    return Err(ReadFault::Io(error).into_read_error(&path));
                }
            }
        }
        return Ok(seek_in_wal(shared, topic, &extents, first, ts)?.unwrap_or(next));
    }
}

/// Searches `reaching`, which has an event at or after `ts`, and the segments after it. The error is
/// `NotFound` if a segment was trimmed or moved after the caller looked at the view.
fn seek_in_segments(
    shared: &Shared,
    topic: &Topic,
    seed: RecordSeed,
    reaching: &Segment,
    first: Seq,
    ts: Timestamp,
) -> io::Result<Option<Seq>> {
    let mut segment = *reaching;
    loop {
        if segment.latest_ts >= ts {
            let reader = match SegmentReader::open(shared, topic, seed, &segment) {
                Err(error)
                    if error.kind() == io::ErrorKind::NotFound
                        && !was_removed(shared, topic, &segment, &error) =>
                {
                    return Ok(Some(segment.first.max(first)));
                }
                reader => reader?,
            };
            // Everything before the later of these two entries is earlier than `ts`, or trimmed.
            let by_time = reader.last_entry_before(|entry| entry.latest_ts_before < ts);
            let by_first = reader.last_entry_before(|entry| entry.seq <= first);
            let start = if by_time.seq >= by_first.seq { by_time } else { by_first };
            let mut walk = reader.walk(start, 16 << 10)?;
            while let Some(item) = walk.next()? {
                match item {
                    WalkItem::Event(event) if event.seq >= first && event.ts >= ts => {
                        return Ok(Some(event.seq));
                    }
                    WalkItem::Damaged { last, first: lost, .. } if last >= first => {
                        return Ok(Some(lost.max(first)));
                    }
                    _ => {}
                }
            }
        }
        // The event that reached `ts` was trimmed. Later segments may have another.
        let view = shared.view();
        let segments = view.topics.get(topic).map_or(&[][..], |view| &view.segments);
        match segments.iter().find(|later| later.first > segment.last) {
            Some(later) => segment = *later,
            None => return Ok(None),
        }
    }
}

/// Searches `extents`, each of which reaches `ts`, from the event `first` on.
fn seek_in_wal(
    shared: &Shared,
    topic: &Topic,
    extents: &[WalExtent],
    first: Seq,
    ts: Timestamp,
) -> Result<Option<Seq>, ReadError> {
    for extent in extents {
        let mut from = extent.first.max(first);
        while from <= extent.last() {
            match read(shared, topic, from, ReadBudget::of_events(extent.count as usize)) {
                Ok(page) => {
                    let found = page.events.iter().find(|event| event.ts >= ts);
                    if let Some(event) = found.filter(|event| event.seq <= extent.last()) {
                        return Ok(Some(event.seq));
                    }
                    match page.events.last() {
                        Some(last) => from = last.seq.next(),
                        None => break,
                    }
                }
                Err(ReadError::Damaged(Damaged::Events { first, .. })) => return Ok(Some(first)),
                Err(error) => return Err(error),
            }
        }
    }
    Ok(None)
}
