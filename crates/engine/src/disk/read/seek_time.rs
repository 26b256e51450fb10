//! Finding the first event of a time or later.

use std::io;

use prombus_proto::{Seq, Timestamp, Topic};

use crate::disk::read::events::{Fault, has_moved, read};
use crate::disk::read::topic_view::{Segment, WalPiece};
use crate::disk::record::RecordSeed;
use crate::disk::record::walk::Walked;
use crate::disk::segment::reader::SegmentReader;
use crate::disk::shared::Shared;
use crate::{Damaged, ReadBudget, ReadError};

/// See [`crate::Engine::seek_time`].
pub(crate) fn seek_time(shared: &Shared, topic: &Topic, ts: Timestamp) -> Result<Seq, ReadError> {
    loop {
        let (segment, first, next, seed, pieces) = {
            let view = shared.view();
            let Some(view) = view.topics.get(topic) else {
                return Ok(Seq::FIRST);
            };
            let segment = view.segment_reaching(ts).map(|index| view.segments[index]);
            // The first may have been trimmed in part; the second then has all it ever had.
            let reaching = view.wal.iter().filter(|piece| piece.latest_ts >= ts);
            let pieces: Vec<_> = reaching.take(2).cloned().collect();
            (segment, view.first, view.next, view.record_seed, pieces)
        };
        if let Some(segment) = segment {
            match seek_in_segments(shared, topic, seed, &segment, first, ts) {
                Ok(Some(seq)) => return Ok(seq),
                Ok(None) => {}
                Err(error)
                    if error.kind() == io::ErrorKind::NotFound
                        && has_moved(shared, topic, &segment) =>
                {
                    continue;
                }
                Err(error) => {
                    let path = shared.layout.segment(topic, segment.first);
                    return Err(Fault::Io(error).into_read_error(&path));
                }
            }
        }
        return Ok(seek_in_pieces(shared, topic, &pieces, first, ts)?.unwrap_or(next));
    }
}

/// Searches `reaching`, which has an event of `ts` or later, and those behind it.
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
                        && !has_moved(shared, topic, &segment) =>
                {
                    return Ok(Some(segment.first.max(first)));
                }
                reader => reader?,
            };
            // All before this entry is earlier; or it was trimmed, and counting starts there.
            let by_time = reader.last_entry_before(|entry| entry.latest_ts_before < ts);
            let by_first = reader.last_entry_before(|entry| entry.seq <= first);
            let start = if by_time.seq >= by_first.seq { by_time } else { by_first };
            let mut walk = reader.walk(start, 16 << 10);
            while let Some(walked) = walk.next()? {
                match walked {
                    Walked::Event(event) if event.seq >= first && event.ts >= ts => {
                        return Ok(Some(event.seq));
                    }
                    Walked::Damaged { last, first: lost, .. } if last >= first => {
                        return Ok(Some(lost.max(first)));
                    }
                    _ => {}
                }
            }
        }
        // What reached so late was trimmed away; later segments may reach it, too.
        let view = shared.view();
        let segments = view.topics.get(topic).map_or(&[][..], |view| &view.segments);
        match segments.iter().find(|later| later.first > segment.last) {
            Some(later) => segment = *later,
            None => return Ok(None),
        }
    }
}

/// The first event from `first` on in `pieces`, each of which reaches `ts`.
fn seek_in_pieces(
    shared: &Shared,
    topic: &Topic,
    pieces: &[WalPiece],
    first: Seq,
    ts: Timestamp,
) -> Result<Option<Seq>, ReadError> {
    for piece in pieces {
        let mut from = piece.first.max(first);
        while from <= piece.last() {
            match read(shared, topic, from, ReadBudget::of_events(piece.count as usize)) {
                Ok(page) => {
                    let found = page.events.iter().find(|event| event.ts >= ts);
                    if let Some(event) = found.filter(|event| event.seq <= piece.last()) {
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
