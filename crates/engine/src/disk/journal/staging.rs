//! Commits that were gathered for one write: checked, numbered and made into bytes, not yet stored.
//!
//! Everything here can be thrown away: readers see nothing of it until the frame is durable.

use std::collections::HashMap;

use prombus_proto::{EncodedEvent, EventId, Seq, Timestamp, Topic};

use super::retention;
use crate::disk::checksum::{BlockChecksum, checksum};
use crate::disk::ids::recent::{RecentIds, RisingId, find_rising};
use crate::disk::ids::{IdPlace, IdSeed, Ordinal};
use crate::disk::read;
use crate::disk::read::seek_id::{self, StoredIds};
use crate::disk::read::topic_view::TopicView;
use crate::disk::record::{self, EndSum, RecordSeed};
use crate::disk::shared::{Ids, Shared};
use crate::disk::wal::frame::{End, FrameHead, Run, StateChange, Trim};
use crate::disk::wal::scan::{PIECE_BYTES, Piece};
use crate::{
    Batch, CommitError, Conflict, Expect, Position, ReadError, Retention, StateEntry, StateKey,
    StateOp, Version,
};

/// Commits on their way into one frame.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    topics: Vec<StagedTopic>,
    by_name: HashMap<Topic, usize>,
    /// The topic that was staged to last.
    latest: usize,
    trims: Vec<Trim>,
    state: HashMap<StateKey, StateChange>,
    state_in_order: Vec<StateChange>,
    /// Topics that readers do not know yet.
    new_topics: Vec<(Topic, Ordinal)>,
    buffers: RecordBuffers,
}

/// Room for records, kept from frame to frame.
#[derive(Debug, Default)]
pub(crate) struct RecordBuffers(Vec<Vec<u8>>);

impl RecordBuffers {
    /// More than a few, or larger ones, are rare enough to be made anew.
    const MOST: usize = 8;
    const LARGEST: usize = 4 << 20;

    fn take(&mut self) -> Vec<u8> {
        self.0.pop().unwrap_or_default()
    }

    fn give_back(&mut self, mut buffer: Vec<u8>) {
        if self.0.len() < Self::MOST && buffer.capacity() <= Self::LARGEST {
            buffer.clear();
            self.0.push(buffer);
        }
    }
}

#[derive(Debug)]
struct StagedTopic {
    name: Topic,
    ordinal: Ordinal,
    record_seed: RecordSeed,
    id_seed: IdSeed,
    first: Seq,
    /// What readers take for the next position.
    visible_next: Seq,
    next: Seq,
    newest_time_ordered: u128,
    rule: u64,
    records: Vec<u8>,
    records_checksum: BlockChecksum,
    count: u32,
    ids: StagedIds,
    /// Offsets count from the beginning of the records.
    pieces: Vec<Piece>,
    latest_ts: Timestamp,
}

/// A frame ready to be written.
pub(crate) struct StagedFrame {
    pub(crate) head: FrameHead,
    /// Offsets count from the beginning of the frame.
    pub(crate) pieces: Vec<Piece>,
    pub(crate) state: Vec<StateChange>,
    pub(crate) newest_time_ordered: Vec<u128>,
    pub(crate) new_topics: Vec<(Topic, Ordinal)>,
    /// The head, then the records of each run, then the state and the foot.
    parts: Vec<Vec<u8>>,
    buffers: RecordBuffers,
    ids: Vec<(Ordinal, IdSeed, StagedIds)>,
}

/// The ids of staged events of one topic.
#[derive(Debug, Default)]
struct StagedIds {
    /// Those that rise with time, and are newer than all the topic had.
    rising: Vec<RisingId>,
    others: HashMap<EventId, Seq>,
}

impl StagedIds {
    fn find(&self, id: &EventId) -> Option<Seq> {
        let rising = id.time_ordered().and_then(|id| find_rising(&self.rising, id));
        rising.or_else(|| self.others.get(id).copied())
    }
}

impl StagedFrame {
    /// Its bytes, in order.
    pub(crate) fn parts(&self) -> Vec<&[u8]> {
        self.parts.iter().map(Vec::as_slice).collect()
    }

    /// The room it took, for the next frame.
    pub(crate) fn take_buffers(&mut self) -> RecordBuffers {
        // Not the head and the foot: they are small, and the next records would have to grow in them.
        let records = self.parts.drain(1..self.parts.len() - 1);
        records.for_each(|part| self.buffers.give_back(part));
        std::mem::take(&mut self.buffers)
    }

    /// Makes its ids known.
    pub(crate) fn add_ids(&self, known: &mut RecentIds) {
        for (topic, seed, staged) in &self.ids {
            known.add_rising(*topic, &staged.rising);
            for (id, seq) in &staged.others {
                let place = IdPlace { hash: seed.hash(id), topic: *topic, seq: *seq };
                known.insert(place, id.time_ordered());
            }
        }
    }
}

impl Staging {
    pub(crate) fn new(buffers: RecordBuffers) -> Self {
        Self { buffers, ..Self::default() }
    }

    /// Whether there is nothing to write.
    pub(crate) fn is_empty(&self) -> bool {
        self.trims.is_empty()
            && self.state_in_order.is_empty()
            && self.topics.iter().all(|topic| topic.count == 0)
    }

    /// Checks `batch`, whose sizes are right, against what is stored and what was staged before it,
    /// and stages it.
    /// Nothing of it is staged after an error.
    pub(crate) fn stage(
        &mut self,
        shared: &Shared,
        ids: &Ids,
        (batch, end_sums): (&Batch, &[EndSum]),
        version: Version,
    ) -> Result<Vec<Position>, CommitError> {
        for (topic, expected) in &batch.expected_last {
            let actual = self.next_of(shared, topic).previous();
            if actual != *expected {
                let (topic, expected) = (topic.clone(), *expected);
                return Err(Conflict::Last { topic, expected, actual }.into());
            }
        }
        let changes = self.check_state(shared, &batch.state, version)?;
        let duplicates = self.find_duplicates(shared, ids, &batch.events)?;
        // From here on nothing fails.
        let mut duplicates = duplicates.into_iter().peekable();
        let mut positions: Vec<Position> = Vec::with_capacity(batch.events.len());
        for (index, (event, end_sum)) in batch.events.iter().zip(end_sums).enumerate() {
            let known = duplicates.next_if(|(duplicate, _)| *duplicate == index);
            positions.push(match known.map(|(_, place)| place) {
                Some(Place::Stored(seq)) => Position { seq, duplicate: true },
                Some(Place::EarlierInBatch(index)) => {
                    Position { duplicate: true, ..positions[index] }
                }
                None => Position { seq: self.append(shared, event, *end_sum), duplicate: false },
            });
        }
        for change in changes {
            self.state.insert(change.key.clone(), change.clone());
            self.state_in_order.push(change);
        }
        Ok(positions)
    }

    /// Stages a trim, if it changes anything.
    pub(crate) fn stage_trim(&mut self, shared: &Shared, topic: &Topic, below: Seq) {
        if !self.is_unknown(shared, topic) {
            let index = self.topic_index(shared, topic);
            let rule = self.topics[index].rule;
            self.trim(index, below, rule);
        }
    }

    fn is_unknown(&self, shared: &Shared, topic: &Topic) -> bool {
        !self.by_name.contains_key(topic) && !shared.view().topics.contains_key(topic)
    }

    /// Stages what `rule` forgets. An older rule than the last is refused.
    pub(crate) fn stage_retain(
        &mut self,
        shared: &Shared,
        topic: &Topic,
        rule: &Retention,
    ) -> Result<(), CommitError> {
        if rule.revision == 0 && self.is_unknown(shared, topic) {
            return Ok(());
        }
        let index = self.topic_index(shared, topic);
        let applied = self.topics[index].rule;
        if rule.revision < applied {
            let (topic, offered) = (topic.clone(), rule.revision);
            return Err(CommitError::StaleRule { topic, offered, applied });
        }
        self.trim(index, retention::kept_from(shared, topic, rule), rule.revision);
        Ok(())
    }

    fn trim(&mut self, index: usize, below: Seq, rule: u64) {
        let staged = &mut self.topics[index];
        let below = below.min(staged.next).max(staged.first);
        if below > staged.first || rule > staged.rule {
            staged.first = below;
            staged.rule = rule;
            self.trims.push(Trim { topic: staged.name.clone(), below, rule });
        }
    }

    /// Makes the frame's bytes.
    pub(crate) fn into_frame(self, number: u64, last_version: Version) -> StagedFrame {
        let mut tail = Vec::new();
        self.state_in_order.iter().for_each(|change| change.append_to(&mut tail));
        let topics: Vec<_> = self.topics.into_iter().filter(|topic| topic.count > 0).collect();
        let head = FrameHead {
            number,
            last_version,
            runs: topics.iter().map(StagedTopic::run).collect(),
            trims: self.trims,
            state_bytes: u32::try_from(tail.len()).expect("a frame is below 4 GiB"),
            state_checksum: checksum(&tail),
        };
        let start = head.encode(End::Head);
        head.append_to(End::Foot, &mut tail);
        let mut frame = StagedFrame {
            pieces: Vec::with_capacity(topics.len()),
            state: self.state_in_order,
            newest_time_ordered: Vec::with_capacity(topics.len()),
            new_topics: self.new_topics,
            parts: Vec::with_capacity(topics.len() + 2),
            buffers: self.buffers,
            ids: Vec::with_capacity(topics.len()),
            head,
        };
        let mut offset = start.len() as u64;
        frame.parts.push(start);
        for (run, topic) in topics.into_iter().enumerate() {
            let placed = |piece: Piece| Piece { run, offset: offset + piece.offset, ..piece };
            frame.pieces.extend(topic.pieces.into_iter().map(placed));
            offset += topic.records.len() as u64;
            frame.parts.push(topic.records);
            frame.newest_time_ordered.push(topic.newest_time_ordered);
            frame.ids.push((topic.ordinal, topic.id_seed, topic.ids));
        }
        frame.parts.push(tail);
        frame
    }

    fn next_of(&self, shared: &Shared, topic: &Topic) -> Seq {
        match self.by_name.get(topic) {
            Some(index) => self.topics[*index].next,
            None => shared.view().topics.get(topic).map_or(Seq::FIRST, |view| view.next),
        }
    }

    fn check_state(
        &self,
        shared: &Shared,
        ops: &[StateOp],
        version: Version,
    ) -> Result<Vec<StateChange>, CommitError> {
        let mut changes: Vec<StateChange> = Vec::with_capacity(ops.len());
        for op in ops {
            let key = op.key();
            if op.expect() != Expect::Any {
                let in_batch = changes.iter().rfind(|change| change.key == *key);
                let actual = self.current(shared, in_batch, key)?.map(|entry| entry.version);
                if !op.expect().holds(actual) {
                    return Err(Conflict::State { key: key.clone(), actual }.into());
                }
            }
            let put = match op {
                StateOp::Put { value, expires_at, .. } => Some((value.clone(), *expires_at)),
                StateOp::Delete { .. } => None,
            };
            changes.push(StateChange { key: key.clone(), version, put });
        }
        Ok(changes)
    }

    /// What is at `key` now, with all that was staged.
    fn current(
        &self,
        shared: &Shared,
        in_batch: Option<&StateChange>,
        key: &StateKey,
    ) -> Result<Option<StateEntry>, ReadError> {
        match in_batch.or_else(|| self.state.get(key)) {
            Some(change) => {
                let now = shared.options.clock.now();
                Ok(change.entry().filter(|entry| !entry.has_expired(now)))
            }
            None => read::state::get(shared, key),
        }
    }

    /// Which of `events` are there already, by their index, and where. Hardly ever any.
    fn find_duplicates(
        &self,
        shared: &Shared,
        ids: &Ids,
        events: &[EncodedEvent],
    ) -> Result<Vec<(usize, Place)>, CommitError> {
        let mut duplicates = Vec::new();
        // Within the batch: by topic, the newest id that rises with time, and all others.
        let mut in_batch = BatchIds::of(events);
        let mut cached: Option<(Topic, IdContext)> = None;
        for (index, event) in events.iter().enumerate() {
            let topic = event.topic();
            let context = match &cached {
                Some((name, context)) if name == topic => *context,
                _ => {
                    let context = self.id_context(shared, topic);
                    cached = Some((topic.clone(), context));
                    context
                }
            };
            let place = match in_batch.earlier(index) {
                Some(earlier) => Some(Place::EarlierInBatch(earlier)),
                None => self.stored(shared, ids, &context, event)?.map(Place::Stored),
            };
            duplicates.extend(place.map(|place| (index, place)));
        }
        Ok(duplicates)
    }

    fn id_context(&self, shared: &Shared, topic: &Topic) -> IdContext {
        if let Some(index) = self.by_name.get(topic) {
            let staged = &self.topics[*index];
            return IdContext {
                known: Some((staged.ordinal, staged.id_seed)),
                first: staged.first,
                newest_time_ordered: staged.newest_time_ordered,
            };
        }
        let view = shared.view();
        let view = view.topics.get(topic);
        IdContext {
            known: view.map(|view| (view.ordinal, view.id_seed)),
            first: view.map_or(Seq::FIRST, |view| view.first),
            newest_time_ordered: view.map_or(0, |view| view.newest_time_ordered),
        }
    }

    /// Where the event's id is stored or staged already.
    fn stored(
        &self,
        shared: &Shared,
        ids: &Ids,
        context: &IdContext,
        event: &EncodedEvent,
    ) -> Result<Option<Seq>, CommitError> {
        let Some((ordinal, seed)) = context.known else {
            return Ok(None);
        };
        let (topic, id) = (event.topic(), event.id());
        if id.time_ordered().is_some_and(|id| id > context.newest_time_ordered) {
            return Ok(None);
        }
        if let Some(seq) = self.staged_with_id(topic, id) {
            return Ok(Some(seq));
        }
        let hash = seed.hash(id);
        let mut candidates = Vec::new();
        ids.newest.find(hash, ordinal, id.time_ordered(), &mut candidates);
        let index = ids.index.clone();
        let stored = StoredIds { hash, topic: ordinal, index, candidates };
        Ok(seek_id::find_id(shared, topic, id, context.first, stored)?)
    }

    fn staged_with_id(&self, topic: &Topic, id: &EventId) -> Option<Seq> {
        let staged = &self.topics[*self.by_name.get(topic)?];
        staged.ids.find(id).filter(|seq| *seq >= staged.first)
    }

    fn append(&mut self, shared: &Shared, event: &EncodedEvent, end_sum: EndSum) -> Seq {
        let index = self.topic_index(shared, event.topic());
        self.topics[index].append(event, end_sum)
    }

    fn topic_index(&mut self, shared: &Shared, topic: &Topic) -> usize {
        // Most events go where the one before them went.
        if self.topics.get(self.latest).is_some_and(|latest| latest.name == *topic) {
            return self.latest;
        }
        if let Some(index) = self.by_name.get(topic) {
            self.latest = *index;
            return *index;
        }
        let staged = {
            let view = shared.view();
            match view.topics.get(topic) {
                Some(view) => StagedTopic::of(topic, view, self.buffers.take()),
                None => {
                    let staged_before = u32::try_from(self.new_topics.len()).expect("few topics");
                    let ordinal = Ordinal(view.next_ordinal().0 + staged_before);
                    self.new_topics.push((topic.clone(), ordinal));
                    StagedTopic::of(topic, &view.new_topic(topic, ordinal), self.buffers.take())
                }
            }
        };
        self.topics.push(staged);
        self.latest = self.topics.len() - 1;
        self.by_name.insert(topic.clone(), self.latest);
        self.latest
    }
}

/// What finding an id in a topic needs to know.
#[derive(Clone, Copy)]
struct IdContext {
    known: Option<(Ordinal, IdSeed)>,
    first: Seq,
    newest_time_ordered: u128,
}

/// Where an event of a batch is already.
enum Place {
    Stored(Seq),
    EarlierInBatch(usize),
}

/// The ids of one batch, to find repetitions. Ids that rise with time, as most do, are only
/// compared with the one before.
struct BatchIds<'a> {
    events: &'a [EncodedEvent],
    rising: Option<(&'a Topic, u128)>,
    all: HashMap<(&'a Topic, &'a EventId), usize>,
    /// Events before this one are in `all`.
    before: usize,
}

impl<'a> BatchIds<'a> {
    fn of(events: &'a [EncodedEvent]) -> Self {
        Self { events, rising: None, all: HashMap::new(), before: 0 }
    }

    /// The index of an earlier event of the same topic and id, asked for one after the other.
    fn earlier(&mut self, index: usize) -> Option<usize> {
        let event = &self.events[index];
        let rises = match (self.rising, event.id().time_ordered()) {
            (None, Some(id)) if index == 0 => Some(id),
            (Some((topic, last)), Some(id)) if topic == event.topic() && id > last => Some(id),
            _ => None,
        };
        if let Some(id) = rises {
            self.rising = Some((event.topic(), id));
            return None;
        }
        // Out of order, or another topic: from here on every event is compared with all.
        self.rising = None;
        for (known, event) in self.events.iter().enumerate().take(index).skip(self.before) {
            self.all.entry((event.topic(), event.id())).or_insert(known);
        }
        self.before = index + 1;
        match self.all.entry((event.topic(), event.id())) {
            std::collections::hash_map::Entry::Occupied(known) => Some(*known.get()),
            std::collections::hash_map::Entry::Vacant(free) => {
                free.insert(index);
                None
            }
        }
    }
}

impl StagedTopic {
    fn of(name: &Topic, view: &TopicView, records: Vec<u8>) -> Self {
        Self {
            name: name.clone(),
            ordinal: view.ordinal,
            record_seed: view.record_seed,
            id_seed: view.id_seed,
            first: view.first,
            visible_next: view.next,
            next: view.next,
            newest_time_ordered: view.newest_time_ordered,
            rule: view.rule,
            records,
            records_checksum: BlockChecksum::default(),
            count: 0,
            ids: StagedIds::default(),
            pieces: Vec::new(),
            latest_ts: Timestamp(0),
        }
    }

    fn append(&mut self, event: &EncodedEvent, end_sum: EndSum) -> Seq {
        let seq = self.next;
        let start = self.records.len();
        record::append(&mut self.records, self.record_seed, seq, event, end_sum);
        self.records_checksum.advance(&self.records);
        let bytes = u32::try_from(self.records.len() - start).expect("a record is below 4 GiB");
        match self.pieces.last_mut() {
            Some(piece) if (piece.bytes as usize) < PIECE_BYTES => {
                piece.bytes += bytes;
                piece.count += 1;
                piece.latest_ts = piece.latest_ts.max(event.ts());
            }
            _ => self.pieces.push(Piece {
                run: 0,
                offset: start as u64,
                bytes,
                first: seq,
                count: 1,
                latest_ts: event.ts(),
                newest_id_before: self.newest_time_ordered,
            }),
        }
        match event.id().time_ordered() {
            Some(id) if id > self.newest_time_ordered => {
                self.newest_time_ordered = id;
                self.ids.rising.push(RisingId::new(id, seq));
            }
            _ => {
                self.ids.others.insert(event.id().clone(), seq);
            }
        }
        self.count += 1;
        self.latest_ts = self.latest_ts.max(event.ts());
        self.next = seq.next();
        seq
    }

    fn run(&self) -> Run {
        Run {
            topic: self.name.clone(),
            first: self.visible_next,
            count: self.count,
            bytes: u32::try_from(self.records.len()).expect("a frame is below 4 GiB"),
            checksum: self.records_checksum.finish(&self.records),
            latest_ts: self.latest_ts,
        }
    }
}
