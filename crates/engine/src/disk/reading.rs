//! Reading events back: from segments, then from the write-ahead log.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use prombus_proto::{EventId, Seq, Timestamp, Topic};

use super::file_header::{HEADER_BYTES, SEGMENT, SPARSE_INDEX};
use super::ids::{IdHash, IdIndex, Ordinal, time_ordered};
use super::record::RecordSeed;
use super::record_walk::{RecordRange, RecordWalk, Walked};
use super::shared::Shared;
use super::sparse_index::{self, IndexEntry};
use super::topic_view::{Segment, TopicView, WalPiece};
use super::wal_spans::next_span;
use crate::{Damaged, Incident, Page, ReadBudget, ReadError, StoredEvent, Unavailable};

/// The most that is read from a file at a time.
const MAX_CHUNK_BYTES: usize = 1 << 20;
/// What lies before the wanted event since the last entry of the index.
const LEAD_BYTES: usize = 4096;
const _: () = assert!(LEAD_BYTES as u64 >= sparse_index::INTERVAL_BYTES);

/// Where the next events of a topic are.
enum Source {
    Segment(Segment),
    Wal(Vec<WalPiece>),
}

/// Events being gathered within a budget.
struct Gathering {
    events: Vec<StoredEvent>,
    budget: ReadBudget,
    bytes: usize,
}

enum Gathered {
    /// The source is exhausted; go on with the next.
    More,
    /// The budget is, or damage follows.
    Enough,
}

impl Gathering {
    fn has_room_for(&self, event_bytes: usize) -> bool {
        self.events.is_empty()
            || self.events.len() < self.budget.events
                && self.bytes + event_bytes <= self.budget.bytes
    }

    fn is_full(&self) -> bool {
        !self.events.is_empty()
            && (self.events.len() >= self.budget.events || self.bytes >= self.budget.bytes)
    }

    fn bytes_left(&self) -> usize {
        self.budget.bytes.saturating_sub(self.bytes)
    }
}

/// See [`crate::Engine::read`].
pub(super) fn read(
    shared: &Shared,
    topic: &Topic,
    from: Seq,
    budget: ReadBudget,
) -> Result<Page, ReadError> {
    let mut gathering = Gathering { events: Vec::new(), budget, bytes: 0 };
    let mut expected = from.max(Seq::FIRST);
    loop {
        let (source, seed) = {
            let view = shared.view();
            let Some(topic_view) = view.topics.get(topic) else {
                break;
            };
            if gathering.events.is_empty() {
                expected = expected.max(topic_view.first);
            }
            if expected >= topic_view.next || expected < topic_view.first {
                break;
            }
            (source_of(topic_view, expected, &gathering), topic_view.record_seed)
        };
        let gathered = match source {
            Ok(Source::Segment(segment)) => {
                match gather_segment(shared, topic, seed, &segment, expected, &mut gathering) {
                    // Trimmed away between the look and the reading: look again.
                    Err(Fault::Io(error))
                        if error.kind() == io::ErrorKind::NotFound
                            && has_moved(shared, topic, &segment) =>
                    {
                        continue;
                    }
                    Err(Fault::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
                        without_segment(shared, topic, &segment, &gathering)?
                    }
                    other => other.map_err(|fault| {
                        fault.into_read_error(&shared.layout.segment(topic, segment.first))
                    })?,
                }
            }
            Ok(Source::Wal(pieces)) => {
                gather_pieces(shared, topic, seed, &pieces, expected, &mut gathering)?
            }
            Err(lost) => missing(shared, topic, &lost, &gathering)?,
        };
        expected = gathering.events.last().map_or(expected, |event| event.seq.next());
        if matches!(gathered, Gathered::Enough) || gathering.is_full() {
            break;
        }
    }
    Ok(Page { events: gathering.events })
}

/// Positions that are nowhere.
struct Missing {
    first: Seq,
    last: Seq,
}

fn source_of(view: &TopicView, expected: Seq, gathering: &Gathering) -> Result<Source, Missing> {
    let missing = |last| Missing { first: view.first_missing_before(expected), last };
    if let Some(index) = view.segment_of(expected) {
        let segment = view.segments[index];
        if segment.first > expected {
            return Err(missing(segment.first.previous()));
        }
        return Ok(Source::Segment(segment));
    }
    let Some(index) = view.piece_of(expected) else {
        return Err(missing(view.next.previous()));
    };
    if view.wal[index].first > expected {
        return Err(missing(view.wal[index].first.previous()));
    }
    // As many pieces as the budget may need; a gap ends them.
    let mut pieces: Vec<WalPiece> = Vec::new();
    let (mut bytes, mut events) = (0, 0);
    for piece in view.wal.range(index..) {
        let enough = bytes > gathering.bytes_left() || events >= gathering.budget.events;
        if pieces.last().is_some_and(|before| before.last().next() != piece.first || enough) {
            break;
        }
        // The first piece may lie mostly before the wanted event.
        if !pieces.is_empty() {
            bytes += piece.bytes as usize;
            events += piece.count as usize;
        }
        pieces.push(piece.clone());
    }
    Ok(Source::Wal(pieces))
}

fn missing(
    shared: &Shared,
    topic: &Topic,
    lost: &Missing,
    gathering: &Gathering,
) -> Result<Gathered, ReadError> {
    if !gathering.events.is_empty() {
        return Ok(Gathered::Enough);
    }
    let file = shared.layout.quarantine();
    let detail = format!("they were lost from the write-ahead log, see {}", file.display());
    let (topic, first, last) = (topic.clone(), lost.first, lost.last);
    let damaged = Damaged::Events { topic: topic.clone(), first, last, detail: detail.clone() };
    shared.report(Incident::DamagedEvents { topic, first, last, file, detail });
    Err(damaged.into())
}

/// The file of a segment is gone: all that it held is damaged.
fn without_segment(
    shared: &Shared,
    topic: &Topic,
    segment: &Segment,
    gathering: &Gathering,
) -> Result<Gathered, ReadError> {
    if !gathering.events.is_empty() {
        return Ok(Gathered::Enough);
    }
    let trimmed_to = shared.view().topics.get(topic).map_or(Seq::FIRST, |view| view.first);
    let file = shared.layout.segment(topic, segment.first);
    let (topic, first, last) = (topic.clone(), segment.first.max(trimmed_to), segment.last);
    let detail = format!("{} is missing", file.display());
    let damaged = Damaged::Events { topic: topic.clone(), first, last, detail: detail.clone() };
    shared.report(Incident::DamagedEvents { topic, first, last, file, detail });
    Err(damaged.into())
}

fn has_moved(shared: &Shared, topic: &Topic, segment: &Segment) -> bool {
    let view = shared.view();
    view.topics
        .get(topic)
        .is_none_or(|view| !view.segments.iter().any(|s| s.first == segment.first))
}

enum Fault {
    Damaged(Damaged),
    Io(io::Error),
}

impl Fault {
    fn into_read_error(self, path: &Path) -> ReadError {
        match self {
            Fault::Damaged(damaged) => damaged.into(),
            Fault::Io(error) => Unavailable::Io {
                context: format!("reading {}", path.display()),
                source: Arc::new(error),
            }
            .into(),
        }
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Fault::Io(error)
    }
}

/// Goes through `walk` from `from` on and gathers what it finds.
fn gather<R: super::record_walk::ReadAt>(
    shared: &Shared,
    topic: &Topic,
    file: &Path,
    mut walk: RecordWalk<R>,
    resume: impl Fn(u64) -> Option<(u64, Seq)>,
    from: Seq,
    gathering: &mut Gathering,
) -> Result<Gathered, Fault> {
    while !gathering.is_full() {
        match walk.next(&resume)? {
            None => return Ok(Gathered::More),
            Some(Walked::Event(event)) if event.seq < from => {}
            Some(Walked::Event(event)) => {
                if !gathering.has_room_for(event.json.len()) {
                    return Ok(Gathered::Enough);
                }
                gathering.bytes += event.json.len();
                gathering.events.push(event);
            }
            Some(Walked::Damaged { last, .. }) if last < from => {}
            Some(Walked::Damaged { first, last, offset }) => {
                let detail = format!("{} at {offset}", file.display());
                shared.report(Incident::DamagedEvents {
                    topic: topic.clone(),
                    first,
                    last,
                    file: file.to_owned(),
                    detail: format!("no record that fits at {offset}"),
                });
                if gathering.events.is_empty() {
                    let topic = topic.clone();
                    return Err(Fault::Damaged(Damaged::Events { topic, first, last, detail }));
                }
                return Ok(Gathered::Enough);
            }
        }
    }
    Ok(Gathered::Enough)
}

fn gather_segment(
    shared: &Shared,
    topic: &Topic,
    seed: RecordSeed,
    segment: &Segment,
    from: Seq,
    gathering: &mut Gathering,
) -> Result<Gathered, Fault> {
    let reader = SegmentReader::open(shared, topic, seed, segment)?;
    let start = reader.last_entry_before(|entry| entry.seq <= from);
    let chunk = reader.chunk_for(gathering);
    let walk = reader.walk(start, chunk);
    let resume = |offset| reader.resume_behind(offset);
    gather(shared, topic, &reader.path, walk, resume, from, gathering)
}

/// A segment and its index, open for reading.
struct SegmentReader<'a> {
    shared: &'a Shared,
    path: std::path::PathBuf,
    index_path: std::path::PathBuf,
    file: Arc<File>,
    /// Nothing where the segment is too small for one, or where it cannot be opened.
    index: Option<Arc<File>>,
    seed: RecordSeed,
    segment: &'a Segment,
}

impl<'a> SegmentReader<'a> {
    fn open(
        shared: &'a Shared,
        topic: &Topic,
        seed: RecordSeed,
        segment: &'a Segment,
    ) -> io::Result<Self> {
        let path = shared.layout.segment(topic, segment.first);
        let index_path = shared.layout.sparse_index(topic, segment.first);
        let tell = |path: &Path, detail| shared.report_rebuilt(path, detail);
        let file = shared.files.open(&path, SEGMENT, |detail| tell(&path, detail))?;
        let index = if segment.index_entries == 0 {
            None
        } else {
            match shared.files.open(&index_path, SPARSE_INDEX, |detail| {
                tell(&index_path, detail);
            }) {
                Ok(index) => Some(index),
                Err(error) => {
                    shared.report_rebuilt(&index_path, error.to_string());
                    None
                }
            }
        };
        Ok(Self { shared, path, index_path, file, index, seed, segment })
    }

    fn beginning(&self) -> IndexEntry {
        IndexEntry {
            seq: self.segment.first,
            offset: HEADER_BYTES as u64,
            latest_ts_before: Timestamp(0),
            newest_id_before: 0,
        }
    }

    /// The last indexed event for which `is_before` holds; the first event where none does, or
    /// where the index cannot be used.
    fn last_entry_before(&self, is_before: impl Fn(&IndexEntry) -> bool) -> IndexEntry {
        let found = self.index.as_ref().map_or(Ok(None), |index| {
            sparse_index::last_before(index, self.segment.index_entries, is_before)
        });
        match found {
            Ok(entry) => entry.unwrap_or_else(|| self.beginning()),
            Err(detail) => {
                self.shared.report_rebuilt(&self.index_path, detail);
                self.beginning()
            }
        }
    }

    /// Where to go on behind damage at `offset`.
    fn resume_behind(&self, offset: u64) -> Option<(u64, Seq)> {
        let index = self.index.as_ref()?;
        match sparse_index::first_behind(index, self.segment.index_entries, offset) {
            Ok(entry) => entry.map(|entry| (entry.offset, entry.seq)),
            Err(detail) => {
                self.shared.report_rebuilt(&self.index_path, detail);
                None
            }
        }
    }

    fn walk(
        &self,
        start: IndexEntry,
        chunk: usize,
    ) -> RecordWalk<impl super::record_walk::ReadAt + '_> {
        let range = RecordRange {
            seed: self.seed,
            start: start.offset,
            end: self.segment.end,
            first: start.seq,
            last: self.segment.last,
        };
        RecordWalk::new(range, chunk, |offset, bytes| read_what_is_there(&self.file, offset, bytes))
    }

    /// How much to read at a time: about what the budget can use.
    fn chunk_for(&self, gathering: &Gathering) -> usize {
        let events = self.segment.last.0 - self.segment.first.0 + 1;
        let average = self.segment.end / events.max(1) + 1;
        let average = usize::try_from(average).unwrap_or(MAX_CHUNK_BYTES);
        let by_events = gathering.budget.events.saturating_mul(average);
        by_events.min(gathering.bytes_left()).saturating_add(LEAD_BYTES).min(MAX_CHUNK_BYTES)
    }
}

/// `bytes` bytes at `offset`; of a file that was cut off, what is left.
pub(super) fn read_what_is_there(file: &File, offset: u64, bytes: usize) -> io::Result<Bytes> {
    let mut buffer = vec![0; bytes];
    let mut got = 0;
    while got < bytes {
        match file.read_at(&mut buffer[got..], offset + got as u64) {
            Ok(0) if got == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(0) => break,
            Ok(more) => got += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    buffer.truncate(got);
    Ok(Bytes::from(buffer))
}

fn gather_pieces(
    shared: &Shared,
    topic: &Topic,
    seed: RecordSeed,
    pieces: &[WalPiece],
    from: Seq,
    gathering: &mut Gathering,
) -> Result<Gathered, ReadError> {
    let mut rest = pieces;
    let failed =
        |error: io::Error, piece: &WalPiece| Fault::Io(error).into_read_error(&piece.file.path);
    while let Some(span) = next_span(&mut rest).map_err(|error| failed(error, &rest[0]))? {
        for piece in span.pieces {
            let range = RecordRange {
                seed,
                start: piece.offset,
                end: piece.offset + u64::from(piece.bytes),
                first: piece.first,
                last: piece.last(),
            };
            let bytes = span.bytes_of(piece);
            let read_at = |offset: u64, length: usize| {
                let at = usize::try_from(offset - piece.offset).map_err(io::Error::other)?;
                Ok(bytes.slice(at..at + length))
            };
            let walk = RecordWalk::new(range, piece.bytes as usize, read_at);
            let file = &piece.file.path;
            let gathered = gather(shared, topic, file, walk, |_| None, from, gathering)
                .map_err(|fault| fault.into_read_error(file))?;
            if matches!(gathered, Gathered::Enough) {
                return Ok(Gathered::Enough);
            }
        }
    }
    Ok(Gathered::More)
}

/// Whether reading from `from` on finds all of it in the write-ahead log, which the operating
/// system still has in memory.
pub(super) fn is_recent(shared: &Shared, topic: &Topic, from: Seq) -> bool {
    let view = shared.view();
    let segments = view.topics.get(topic).and_then(|view| view.segments.last());
    segments.is_none_or(|segment| segment.last < from)
}

/// See [`crate::Engine::seek_id`].
pub(super) fn seek_id(
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
        newest.newest.find(hash, view.ordinal, time_ordered(id), &mut candidates);
        candidates.retain(|seq| *seq < view.next);
        let ids = StoredIds { hash, topic: view.ordinal, index: newest.index.clone(), candidates };
        (ids, view.first)
    };
    find_id(shared, topic, id, first, ids)
}

/// What is to know for finding an id that is stored.
pub(super) struct StoredIds {
    pub(super) hash: IdHash,
    pub(super) topic: Ordinal,
    pub(super) index: IdIndex,
    /// Where it may be in the newest log file.
    pub(super) candidates: Vec<Seq>,
}

/// Where `id` is, from `first` on.
pub(super) fn find_id(
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
    let Some(rising) = time_ordered(id) else { return Ok(None) };
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
    while let Some(walked) = walk.next(|offset| reader.resume_behind(offset))? {
        // One that cannot be read back may be it; but what nobody can read, may be stored again.
        if let Walked::Event(event) = walked
            && let Some(found) = time_ordered(&event.id).filter(|found| *found >= id)
        {
            return Ok((found == id).then_some(event.seq));
        }
    }
    Ok(None)
}

/// Whether the event at `seq` has this `id`. One that cannot be read back counts: its hash fits,
/// and storing it a second time could not be undone.
pub(super) fn has_id(
    shared: &Shared,
    topic: &Topic,
    seq: Seq,
    id: &EventId,
) -> Result<bool, ReadError> {
    match read(shared, topic, seq, ReadBudget::of_events(1)) {
        Ok(page) => {
            Ok(page.events.first().is_some_and(|event| event.seq == seq && event.id == *id))
        }
        Err(ReadError::Damaged(_)) => Ok(true),
        Err(error) => Err(error),
    }
}

/// See [`crate::Engine::seek_time`].
pub(super) fn seek_time(shared: &Shared, topic: &Topic, ts: Timestamp) -> Result<Seq, ReadError> {
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
            while let Some(walked) = walk.next(|offset| reader.resume_behind(offset))? {
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

/// Finds `id` by reading all of `topic`, for when the index of ids cannot tell.
pub(super) fn scan_for_id(
    shared: &Shared,
    topic: &Topic,
    id: &EventId,
) -> Result<Option<Seq>, ReadError> {
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
