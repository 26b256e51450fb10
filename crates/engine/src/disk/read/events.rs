//! Reading events back: from segments, then from the write-ahead log.

use std::io;
use std::path::Path;
use std::sync::Arc;

use prombus_proto::{Seq, Topic};

use crate::disk::read::topic_view::{Segment, TopicView, WalPiece};
use crate::disk::record::RecordSeed;
use crate::disk::record::walk::{RecordRange, RecordWalk, Walked};
use crate::disk::segment::reader::SegmentReader;
use crate::disk::shared::Shared;
use crate::disk::wal::coalesced_read::next_span;
use crate::{Damaged, Incident, Page, ReadBudget, ReadError, StoredEvent, Unavailable};

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
pub(crate) fn read(
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

pub(crate) fn has_moved(shared: &Shared, topic: &Topic, segment: &Segment) -> bool {
    let view = shared.view();
    view.topics
        .get(topic)
        .is_none_or(|view| !view.segments.iter().any(|s| s.first == segment.first))
}

pub(crate) enum Fault {
    Damaged(Damaged),
    Io(io::Error),
}

impl Fault {
    pub(crate) fn into_read_error(self, path: &Path) -> ReadError {
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

/// Gathers what comes `next`, from `from` on.
fn gather(
    shared: &Shared,
    topic: &Topic,
    file: &Path,
    mut next: impl FnMut() -> io::Result<Option<Walked>>,
    from: Seq,
    gathering: &mut Gathering,
) -> Result<Gathered, Fault> {
    while !gathering.is_full() {
        match next()? {
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
    let chunk = reader.chunk_for(ReadBudget { bytes: gathering.bytes_left(), ..gathering.budget });
    // A guess, so that the list does not grow step by step; the segment's events may differ in size.
    gathering.events.reserve((chunk / reader.average_bytes()).min(gathering.budget.events));
    let mut walk = reader.walk(start, chunk);
    gather(shared, topic, &reader.path, || walk.next(), from, gathering)
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
                end: piece.end(),
                first: piece.first,
                last: piece.last(),
            };
            let bytes = span.bytes_of(piece);
            let read_at = |offset: u64, length: usize| {
                let at = usize::try_from(offset - piece.offset).map_err(io::Error::other)?;
                Ok(bytes.slice(at..at + length))
            };
            let mut walk = RecordWalk::new(range, piece.bytes as usize, read_at);
            let file = &piece.file.path;
            let gathered = gather(shared, topic, file, || walk.next(|_| None), from, gathering)
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
pub(crate) fn is_recent(shared: &Shared, topic: &Topic, from: Seq) -> bool {
    let view = shared.view();
    let segments = view.topics.get(topic).and_then(|view| view.segments.last());
    segments.is_none_or(|segment| segment.last < from)
}
