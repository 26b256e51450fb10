//! Finds an event by its id.

use std::io;
use std::path::PathBuf;

use prombus_proto::{EventId, Seq, Topic};

use super::events::read;
use super::fault::{ReadFault, was_removed};
use crate::disk::ids::{FailedLookup, IdHash, IdIndex, TopicOrdinal};
use crate::disk::record::RecordSeed;
use crate::disk::record::walk::WalkItem;
use crate::disk::segment::Segment;
use crate::disk::segment::reader::{LEAD_BYTES, MAX_CHUNK_BYTES, SegmentReader};
use crate::disk::shared::Shared;
use crate::disk::sorted_runs::RunFault;
use crate::{Damaged, ReadBudget, ReadError};

/// Implements [`crate::Engine::seek_id`].
pub(crate) fn seek_id(
    shared: &Shared,
    topic: &Topic,
    id: &EventId,
) -> Result<Option<Seq>, ReadError> {
    let (index, hash, ordinal, candidates, first) = {
        let tables = shared.ids();
        let view = shared.view();
        let Some(view) = view.topics.get(topic) else { return Ok(None) };
        let mut candidates = Vec::new();
        let hash = view.id_seed.hash(id);
        tables.newest.find(hash, view.ordinal, id.time_ordered(), &mut candidates);
        candidates.retain(|seq| *seq < view.next);
        (tables.index.clone(), hash, view.ordinal, candidates, view.first)
    };
    let lookup = IdLookup { hash, topic: ordinal, index: &index, candidates };
    match find_id(shared, topic, id, first, lookup) {
        Ok(found) => Ok(found),
        Err(SeekFault::Read(error)) => Err(error),
        Err(SeekFault::DamagedIndex { file, detail }) => {
            shared.report_damaged_ids(&file, detail);
            scan_for_id(shared, topic, id)
        }
    }
}

/// Why an id could not be looked up.
pub(crate) enum SeekFault {
    /// An id run that may contain the id is damaged or missing.
    DamagedIndex {
        file: PathBuf,
        detail: String,
    },
    Read(ReadError),
}

impl From<ReadError> for SeekFault {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

/// What is needed to look up an id.
pub(crate) struct IdLookup<'a> {
    pub(crate) hash: IdHash,
    pub(crate) topic: TopicOrdinal,
    pub(crate) index: &'a IdIndex,
    /// The positions it may have in the newest WAL file.
    pub(crate) candidates: Vec<Seq>,
}

/// Returns the position of `id`, if it is at or after `first`.
pub(crate) fn find_id(
    shared: &Shared,
    topic: &Topic,
    id: &EventId,
    first: Seq,
    lookup: IdLookup<'_>,
) -> Result<Option<Seq>, SeekFault> {
    let IdLookup { hash, topic: ordinal, index, mut candidates } = lookup;
    match index.candidates(hash, ordinal, id) {
        Ok(found) => candidates.extend(found),
        Err(FailedLookup { run, fault: RunFault::Damaged(detail) }) => {
            return Err(SeekFault::DamagedIndex { file: run.path.clone(), detail });
        }
        Err(FailedLookup { run, fault: RunFault::Io(error) }) => {
            return Err(ReadFault::Io(error).into_read_error(&run.path).into());
        }
    }
    for seq in candidates {
        if seq >= first && has_id(shared, topic, seq, id)? {
            return Ok(Some(seq));
        }
    }
    let Some(time_ordered) = id.time_ordered() else { return Ok(None) };
    Ok(find_in_segments(shared, topic, time_ordered)?.filter(|seq| *seq >= first))
}

/// Finds a monotonic id in the segments: a UUIDv7 that was newer than every id before it.
fn find_in_segments(shared: &Shared, topic: &Topic, id: u128) -> Result<Option<Seq>, ReadError> {
    loop {
        let (segment, seed) = {
            let view = shared.view();
            let Some(view) = view.topics.get(topic) else { return Ok(None) };
            let Some(segment) = view.segment_of_monotonic_id(id) else { return Ok(None) };
            (segment, view.record_seed)
        };
        match find_in_segment(shared, topic, seed, &segment, id) {
            Err(error) if was_removed(shared, topic, &segment, &error) => {}
            // Recovery has reported it. An event that nobody can read may be stored again.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                let path = shared.layout.file_of(topic, &segment);
                return Err(ReadFault::Io(error).into_read_error(&path));
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
    let (start, end) = reader.entries_around(|entry| entry.newest_id_before < id);
    // A newer id in between does not end the search: it may have been far ahead of the clock.
    let last = end.map_or(segment.last, |entry| entry.seq.previous());
    let mut walk = reader.walk(start, 2 * LEAD_BYTES)?;
    while let Some(item) = walk.next()? {
        match item {
            WalkItem::Event(event) if event.seq > last => break,
            WalkItem::Event(event) if event.id.time_ordered() == Some(id) => {
                return Ok(Some(event.seq));
            }
            // A damaged event may have this id, but one that nobody can read may be stored again.
            WalkItem::Event(_) | WalkItem::Damaged { .. } => {}
        }
    }
    Ok(None)
}

/// Returns `true` if the event at `seq` has this `id`. A damaged event counts: its hash matches, and
/// storing it twice could not be undone.
fn has_id(shared: &Shared, topic: &Topic, seq: Seq, id: &EventId) -> Result<bool, ReadError> {
    match read(shared, topic, seq, ReadBudget::of_events(1)) {
        Ok(page) => {
            Ok(page.events.first().is_some_and(|event| event.seq == seq && event.id == *id))
        }
        Err(ReadError::Damaged(_)) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Finds `id` by reading all of `topic`, for when the index is damaged.
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
