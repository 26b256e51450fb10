//! Finding an event by its id.

use std::io;

use prombus_proto::{EventId, Seq, Topic};

use crate::disk::ids::{IdHash, IdIndex, Ordinal};
use crate::disk::read::events::{Fault, has_moved, read};
use crate::disk::read::topic_view::Segment;
use crate::disk::record::RecordSeed;
use crate::disk::record::walk::Walked;
use crate::disk::segment::reader::{LEAD_BYTES, MAX_CHUNK_BYTES, SegmentReader};
use crate::disk::shared::Shared;
use crate::{Damaged, ReadBudget, ReadError};

/// See [`crate::Engine::seek_id`].
pub(crate) fn seek_id(
    shared: &Shared,
    topic: &Topic,
    id: &EventId,
) -> Result<Option<Seq>, ReadError> {
    let (ids, first) = {
        let newest = shared.ids();
        let view = shared.view();
        let Some(view) = view.topics.get(topic) else { return Ok(None) };
        let mut candidates = Vec::new();
        let hash = view.id_seed.hash(id);
        newest.newest.find(hash, view.ordinal, id.time_ordered(), &mut candidates);
        candidates.retain(|seq| *seq < view.next);
        let ids = StoredIds { hash, topic: view.ordinal, index: newest.index.clone(), candidates };
        (ids, view.first)
    };
    find_id(shared, topic, id, first, ids)
}

/// What is to know for finding an id that is stored.
pub(crate) struct StoredIds {
    pub(crate) hash: IdHash,
    pub(crate) topic: Ordinal,
    pub(crate) index: IdIndex,
    /// Where it may be in the newest log file.
    pub(crate) candidates: Vec<Seq>,
}

/// Where `id` is, from `first` on.
pub(crate) fn find_id(
    shared: &Shared,
    topic: &Topic,
    id: &EventId,
    first: Seq,
    ids: StoredIds,
) -> Result<Option<Seq>, ReadError> {
    let StoredIds { hash, topic: ordinal, index, mut candidates } = ids;
    match index.candidates(hash, ordinal, id) {
        Ok(found) => candidates.extend(found),
        Err(damage) => {
            shared.report_damaged_ids(&damage);
            return scan_for_id(shared, topic, id);
        }
    }
    for seq in candidates {
        if seq >= first && has_id(shared, topic, seq, id)? {
            return Ok(Some(seq));
        }
    }
    let Some(rising) = id.time_ordered() else { return Ok(None) };
    Ok(find_in_segments(shared, topic, rising)?.filter(|seq| *seq >= first))
}

/// Where a UUIDv7 is in the segments, if it was newer than all before it when it came.
fn find_in_segments(shared: &Shared, topic: &Topic, id: u128) -> Result<Option<Seq>, ReadError> {
    loop {
        let (segment, seed) = {
            let view = shared.view();
            let Some(view) = view.topics.get(topic) else { return Ok(None) };
            let Some(segment) = view.segment_of_rising(id) else { return Ok(None) };
            (segment, view.record_seed)
        };
        match find_in_segment(shared, topic, seed, &segment, id) {
            Err(error)
                if error.kind() == io::ErrorKind::NotFound
                    && has_moved(shared, topic, &segment) => {}
            // Reported when the store was opened; what nobody can read, may be stored again.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                let path = shared.layout.segment(topic, segment.first);
                return Err(Fault::Io(error).into_read_error(&path));
            }
            Ok(found) => return Ok(found),
        }
    }
}

fn find_in_segment(
    shared: &Shared,
    topic: &Topic,
    seed: RecordSeed,
    segment: &Segment,
    id: u128,
) -> io::Result<Option<Seq>> {
    let reader = SegmentReader::open(shared, topic, seed, segment)?;
    let start = reader.last_entry_before(|entry| entry.newest_id_before < id);
    let mut walk = reader.walk(start, 2 * LEAD_BYTES);
    while let Some(walked) = walk.next()? {
        // One that cannot be read back may be it; but what nobody can read, may be stored again.
        if let Walked::Event(event) = walked
            && let Some(found) = event.id.time_ordered().filter(|found| *found >= id)
        {
            return Ok((found == id).then_some(event.seq));
        }
    }
    Ok(None)
}

/// Whether the event at `seq` has this `id`. One that cannot be read back counts: its hash fits,
/// and storing it a second time could not be undone.
fn has_id(shared: &Shared, topic: &Topic, seq: Seq, id: &EventId) -> Result<bool, ReadError> {
    match read(shared, topic, seq, ReadBudget::of_events(1)) {
        Ok(page) => {
            Ok(page.events.first().is_some_and(|event| event.seq == seq && event.id == *id))
        }
        Err(ReadError::Damaged(_)) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Finds `id` by reading all of `topic`, for when the index of ids cannot tell.
fn scan_for_id(shared: &Shared, topic: &Topic, id: &EventId) -> Result<Option<Seq>, ReadError> {
    let mut from = Seq::FIRST;
    loop {
        match read(shared, topic, from, ReadBudget::of_bytes(MAX_CHUNK_BYTES)) {
            Ok(page) => {
                if let Some(event) = page.events.iter().find(|event| event.id == *id) {
                    return Ok(Some(event.seq));
                }
                match page.events.last() {
                    Some(last) => from = last.seq.next(),
                    None => return Ok(None),
                }
            }
            Err(ReadError::Damaged(Damaged::Events { last, .. })) => from = last.next(),
            Err(error) => return Err(error),
        }
    }
}
