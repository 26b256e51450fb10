//! Reads events in order: from segments, then from the write-ahead log.

use std::io;
use std::path::Path;

use prombus_proto::{Seq, Topic};

use super::fault::{ReadFault, was_removed};
use super::topic_view::TopicView;
use crate::disk::record::RecordSeed;
use crate::disk::record::walk::{RecordRange, RecordWalk, WalkItem};
use crate::disk::segment::Segment;
use crate::disk::segment::reader::SegmentReader;
use crate::disk::shared::Shared;
use crate::disk::wal::WalExtent;
use crate::disk::wal::coalesced_read::read_next;
use crate::{Damaged, Incident, Page, ReadBudget, ReadError, StoredEvent};

/// Where the next events of a topic are.
enum Source {
    Segment(Segment),
    Wal(Vec<WalExtent>),
}

/// Collects events within a budget.
struct EventCollector {
    events: Vec<StoredEvent>,
    budget: ReadBudget,
    bytes: usize,
}

/// Whether to continue after a source.
enum Collected {
    /// The source is exhausted; the next one follows.
    SourceExhausted,
    /// The budget is exhausted, or damage follows.
    Done,
}

impl EventCollector {
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

/// Implements [`crate::Engine::read`].
pub(crate) fn read(
    shared: &Shared,
    topic: &Topic,
    from: Seq,
    budget: ReadBudget,
) -> Result<Page, ReadError> {
    let mut collector = EventCollector { events: Vec::new(), budget, bytes: 0 };
    let mut expected = from.max(Seq::FIRST);
    loop {
        let (source, seed) = {
            let view = shared.view();
            let Some(topic_view) = view.topics.get(topic) else {
                break;
            };
            if collector.events.is_empty() {
                expected = expected.max(topic_view.first);
            }
            if expected >= topic_view.next || expected < topic_view.first {
                break;
            }
            (source_of(topic_view, expected, &collector), topic_view.record_seed)
        };
        let collected = match source {
            Ok(Source::Segment(segment)) => {
                match collect_from_segment(shared, topic, seed, &segment, expected, &mut collector)
                {
                    Err(ReadFault::Io(error)) if was_removed(shared, topic, &segment, &error) => {
                        continue;
                    }
                    Err(ReadFault::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
                        report_missing_segment(shared, topic, &segment, &collector)?
                    }
                    other => other.map_err(|fault| {
                        fault.into_read_error(&shared.layout.file_of(topic, &segment))
                    })?,
                }
            }
            Ok(Source::Wal(extents)) => {
                collect_from_wal(shared, topic, seed, &extents, expected, &mut collector)?
            }
            Err(lost) => report_missing(shared, topic, &lost, &collector)?,
        };
        expected = collector.events.last().map_or(expected, |event| event.seq.next());
        if matches!(collected, Collected::Done) || collector.is_full() {
            break;
        }
    }
    Ok(Page { events: collector.events })
}

/// Positions that neither a segment nor the write-ahead log has.
struct MissingEvents {
    first: Seq,
    last: Seq,
}

fn source_of(
    view: &TopicView,
    expected: Seq,
    collector: &EventCollector,
) -> Result<Source, MissingEvents> {
    let missing = |last| MissingEvents { first: view.first_missing_before(expected), last };
    if let Some(index) = view.segment_of(expected) {
        let segment = view.segments[index];
        if segment.first > expected {
            return Err(missing(segment.first.previous()));
        }
        return Ok(Source::Segment(segment));
    }
    let Some(index) = view.wal_extent_of(expected) else {
        return Err(missing(view.next.previous()));
    };
    if view.wal[index].first > expected {
        return Err(missing(view.wal[index].first.previous()));
    }
    // As many extents as the budget may need, up to a gap.
    let mut extents: Vec<WalExtent> = Vec::new();
    let (mut bytes, mut events) = (0, 0);
    for extent in view.wal.range(index..) {
        let enough = bytes > collector.bytes_left() || events >= collector.budget.events;
        if extents.last().is_some_and(|before| before.last().next() != extent.first || enough) {
            break;
        }
        // Most of the first extent may lie before the wanted event, so it does not count.
        if !extents.is_empty() {
            bytes += extent.bytes as usize;
            events += extent.count as usize;
        }
        extents.push(extent.clone());
    }
    Ok(Source::Wal(extents))
}

fn report_missing(
    shared: &Shared,
    topic: &Topic,
    lost: &MissingEvents,
    collector: &EventCollector,
) -> Result<Collected, ReadError> {
    if !collector.events.is_empty() {
        return Ok(Collected::Done);
    }
    let file = shared.layout.quarantine();
    let detail = format!("they were lost from the write-ahead log, see {}", file.display());
    let (topic, first, last) = (topic.clone(), lost.first, lost.last);
    let damaged = Damaged::Events { topic: topic.clone(), first, last, detail: detail.clone() };
    shared.report(Incident::DamagedEvents { topic, first, last, file, detail });
    Err(damaged.into())
}

/// The file of a segment is missing: all of its events count as damaged.
fn report_missing_segment(
    shared: &Shared,
    topic: &Topic,
    segment: &Segment,
    collector: &EventCollector,
) -> Result<Collected, ReadError> {
    if !collector.events.is_empty() {
        return Ok(Collected::Done);
    }
    let trimmed_to = shared.view().topics.get(topic).map_or(Seq::FIRST, |view| view.first);
    let file = shared.layout.file_of(topic, segment);
    let (topic, first, last) = (topic.clone(), segment.first.max(trimmed_to), segment.last);
    let detail = format!("{} is missing", file.display());
    let damaged = Damaged::Events { topic: topic.clone(), first, last, detail: detail.clone() };
    shared.report(Incident::DamagedEvents { topic, first, last, file, detail });
    Err(damaged.into())
}

/// Collects the items of `next`, starting with the event `from`.
fn collect(
    shared: &Shared,
    topic: &Topic,
    file: &Path,
    mut next: impl FnMut() -> io::Result<Option<WalkItem>>,
    from: Seq,
    collector: &mut EventCollector,
) -> Result<Collected, ReadFault> {
    while !collector.is_full() {
        match next()? {
            None => return Ok(Collected::SourceExhausted),
            Some(WalkItem::Event(event)) if event.seq < from => {}
            Some(WalkItem::Event(event)) => {
                if !collector.has_room_for(event.json.len()) {
                    return Ok(Collected::Done);
                }
                collector.bytes += event.json.len();
                collector.events.push(event);
            }
            Some(WalkItem::Damaged { last, .. }) if last < from => {}
            Some(WalkItem::Damaged { first, last, offset }) => {
                let detail = format!("{} at offset {offset}", file.display());
                shared.report(Incident::DamagedEvents {
                    topic: topic.clone(),
                    first,
                    last,
                    file: file.to_owned(),
                    detail: format!("no valid record at offset {offset}"),
                });
                if collector.events.is_empty() {
                    let topic = topic.clone();
                    return Err(ReadFault::Damaged(Damaged::Events { topic, first, last, detail }));
                }
                return Ok(Collected::Done);
            }
        }
    }
    Ok(Collected::Done)
}

fn collect_from_segment(
    shared: &Shared,
    topic: &Topic,
    seed: RecordSeed,
    segment: &Segment,
    from: Seq,
    collector: &mut EventCollector,
) -> Result<Collected, ReadFault> {
    let reader = SegmentReader::open(shared, topic, seed, segment)?;
    let start = reader.last_entry_before(|entry| entry.seq <= from);
    let chunk = reader.chunk_for(ReadBudget { bytes: collector.bytes_left(), ..collector.budget });
    // A guess, so that the list does not grow step by step.
    collector.events.reserve((chunk / reader.average_bytes()).min(collector.budget.events));
    let mut walk = reader.walk(start, chunk)?;
    collect(shared, topic, &reader.path, || walk.next(), from, collector)
}

fn collect_from_wal(
    shared: &Shared,
    topic: &Topic,
    seed: RecordSeed,
    extents: &[WalExtent],
    from: Seq,
    collector: &mut EventCollector,
) -> Result<Collected, ReadError> {
    let mut rest = extents;
    let failed = |error: io::Error, extent: &WalExtent| {
        ReadFault::Io(error).into_read_error(&extent.file.path)
    };
    while let Some(read) = read_next(&mut rest).map_err(|error| failed(error, &rest[0]))? {
        for extent in read.extents {
            let range = RecordRange {
                seed,
                start: extent.offset,
                end: extent.end(),
                first: extent.first,
                last: extent.last(),
            };
            let bytes = read.bytes_of(extent);
            let read_at = |offset: u64, length: usize| {
                let at = usize::try_from(offset - extent.offset).map_err(io::Error::other)?;
                Ok(bytes.slice(at..at + length))
            };
            let mut walk = RecordWalk::new(range, extent.bytes as usize, read_at);
            let file = &extent.file.path;
            let collected = collect(shared, topic, file, || walk.next(|_| None), from, collector)
                .map_err(|fault| fault.into_read_error(file))?;
            if matches!(collected, Collected::Done) {
                return Ok(Collected::Done);
            }
        }
    }
    Ok(Collected::SourceExhausted)
}

/// Returns `true` if everything from `from` on is in the write-ahead log, which is still in the page
/// cache of the operating system.
pub(crate) fn is_recent(shared: &Shared, topic: &Topic, from: Seq) -> bool {
    let view = shared.view();
    let last_segment = view.topics.get(topic).and_then(|view| view.segments.last());
    last_segment.is_none_or(|segment| segment.last < from)
}
