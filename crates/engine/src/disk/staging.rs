//! Commits that were gathered for one write: checked, numbered and made into bytes, not yet stored.
//!
//! Everything here can be thrown away: readers see nothing of it until the frame is durable.

use std::collections::HashMap;

use prombus_proto::{EncodedEvent, EventId, Seq, Timestamp, Topic};

use super::checksum::checksum;
use super::frame::{End, FrameHead, Run, StateChange, Trim};
use super::ids::{self, IdPlace, IdSeed, Ordinal};
use super::reading;
use super::record::{self, RecordSeed};
use super::retaining;
use super::shared::{Ids, Shared};
use super::state_reading;
use super::wal_scan::{PIECE_BYTES, Piece};
use crate::{
    Batch, CommitError, Conflict, Expect, Position, ReadError, Retention, StateEntry, StateKey,
    StateOp, Version,
};

/// Commits on their way into one frame.
#[derive(Debug, Default)]
pub(super) struct Staging {
    topics: Vec<StagedTopic>,
    by_name: HashMap<Topic, usize>,
    trims: Vec<Trim>,
    state: HashMap<StateKey, StateChange>,
    state_in_order: Vec<StateChange>,
    inserted: Vec<IdPlace>,
    /// Topics that readers do not know yet.
    new_topics: Vec<(Topic, Ordinal)>,
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
    /// The ids of staged events, in order.
    ids: Vec<EventId>,
    /// Offsets count from the beginning of the records.
    pieces: Vec<Piece>,
    latest_ts: Timestamp,
}

/// A frame ready to be written.
pub(super) struct StagedFrame {
    pub(super) head: FrameHead,
    /// Offsets count from the beginning of the frame.
    pub(super) pieces: Vec<Piece>,
    pub(super) state: Vec<StateChange>,
    pub(super) newest_time_ordered: Vec<u128>,
    pub(super) new_topics: Vec<(Topic, Ordinal)>,
}

impl Staging {
    /// Whether there is nothing to write.
    pub(super) fn is_empty(&self) -> bool {
        self.trims.is_empty()
            && self.state_in_order.is_empty()
            && self.topics.iter().all(|topic| topic.ids.is_empty())
    }

    /// Checks `batch` against what is stored and what was staged before it, and stages it.
    /// Nothing of it is staged after an error.
    pub(super) fn stage(
        &mut self,
        shared: &Shared,
        ids: &mut Ids,
        batch: &Batch,
        version: Version,
    ) -> Result<Vec<Position>, CommitError> {
        batch.check_sizes()?;
        for (topic, expected) in &batch.expected_last {
            let actual = self.next_of(shared, topic).previous();
            if actual != *expected {
                let (topic, expected) = (topic.clone(), *expected);
                return Err(Conflict::Last { topic, expected, actual }.into());
            }
        }
        let changes = self.check_state(shared, &batch.state, version)?;
        let places = self.find_duplicates(shared, ids, &batch.events)?;
        // From here on nothing fails.
        let mut positions: Vec<Position> = Vec::with_capacity(places.len());
        for (event, place) in batch.events.iter().zip(places) {
            positions.push(match place {
                Place::Stored(seq) => Position { seq, duplicate: true },
                Place::EarlierInBatch(index) => Position { duplicate: true, ..positions[index] },
                Place::New => Position { seq: self.append(shared, ids, event), duplicate: false },
            });
        }
        for change in changes {
            self.state.insert(change.key.clone(), change.clone());
            self.state_in_order.push(change);
        }
        Ok(positions)
    }

    /// Stages a trim, if it changes anything.
    pub(super) fn stage_trim(&mut self, shared: &Shared, topic: &Topic, below: Seq) {
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
    pub(super) fn stage_retain(
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
        self.trim(index, retaining::kept_from(shared, topic, rule), rule.revision);
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

    /// Makes the frame's bytes. The staging is empty afterwards.
    pub(super) fn into_frame(
        self,
        number: u64,
        last_version: Version,
        out: &mut Vec<u8>,
    ) -> StagedFrame {
        let with_events = || self.topics.iter().filter(|topic| !topic.ids.is_empty());
        let mut state_bytes = Vec::new();
        self.state_in_order.iter().for_each(|change| change.append_to(&mut state_bytes));
        let head = FrameHead {
            number,
            last_version,
            runs: with_events().map(StagedTopic::run).collect(),
            trims: self.trims.clone(),
            state_bytes: u32::try_from(state_bytes.len()).expect("a frame is below 4 GiB"),
            state_checksum: checksum(&state_bytes),
        };
        out.clear();
        out.reserve(usize::try_from(head.frame_bytes()).expect("a frame fits memory"));
        head.append_to(End::Head, out);
        let mut pieces = Vec::with_capacity(head.runs.len());
        for (run, topic) in with_events().enumerate() {
            let start = out.len() as u64;
            pieces.extend(topic.pieces.iter().map(|piece| Piece {
                run,
                offset: start + piece.offset,
                ..piece.clone()
            }));
            out.extend_from_slice(&topic.records);
        }
        out.extend_from_slice(&state_bytes);
        head.append_to(End::Foot, out);
        let newest_time_ordered = with_events().map(|topic| topic.newest_time_ordered).collect();
        StagedFrame {
            head,
            pieces,
            state: self.state_in_order,
            newest_time_ordered,
            new_topics: self.new_topics,
        }
    }

    /// Takes back what staging did outside: the frame could not be written.
    pub(super) fn undo(inserted: &[IdPlace], ids: &mut Ids) {
        inserted.iter().for_each(|place| ids.newest.remove(*place));
    }

    pub(super) fn take_inserted(&mut self) -> Vec<IdPlace> {
        std::mem::take(&mut self.inserted)
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
            None => state_reading::get(shared, key),
        }
    }

    fn find_duplicates(
        &self,
        shared: &Shared,
        ids: &Ids,
        events: &[EncodedEvent],
    ) -> Result<Vec<Place>, CommitError> {
        let mut places = Vec::with_capacity(events.len());
        // Within the batch: by topic, the newest id that rises with time, and all others.
        let mut in_batch = BatchIds::default();
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
            let place = match in_batch.earlier(index, event) {
                Some(earlier) => Place::EarlierInBatch(earlier),
                None => match self.stored(shared, ids, &context, event)? {
                    Some(seq) => Place::Stored(seq),
                    None => Place::New,
                },
            };
            places.push(place);
        }
        Ok(places)
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
        if ids::time_ordered(id).is_some_and(|id| id > context.newest_time_ordered) {
            return Ok(None);
        }
        let hash = seed.hash(id);
        let mut candidates = Vec::new();
        ids.newest.find(hash, ordinal, &mut candidates);
        match ids.index.candidates(hash, ordinal, id) {
            Ok(found) => candidates.extend(found),
            Err(damage) => {
                shared.report_damaged_ids(&damage);
                return Ok(match self.staged_with_id(topic, id) {
                    Some(seq) => Some(seq),
                    None => reading::scan_for_id(shared, topic, id)?,
                });
            }
        }
        for seq in candidates {
            if seq >= context.first && self.is_at(shared, topic, seq, id)? {
                return Ok(Some(seq));
            }
        }
        Ok(None)
    }

    fn staged_with_id(&self, topic: &Topic, id: &EventId) -> Option<Seq> {
        let staged = &self.topics[*self.by_name.get(topic)?];
        let index = staged.ids.iter().position(|known| known == id)?;
        Some(staged.visible_next.plus(index as u64)).filter(|seq| *seq >= staged.first)
    }

    fn is_at(
        &self,
        shared: &Shared,
        topic: &Topic,
        seq: Seq,
        id: &EventId,
    ) -> Result<bool, ReadError> {
        if let Some(index) = self.by_name.get(topic) {
            let staged = &self.topics[*index];
            if let Some(index) = seq.0.checked_sub(staged.visible_next.0) {
                let index = usize::try_from(index).unwrap_or(usize::MAX);
                return Ok(staged.ids.get(index).is_some_and(|known| known == id));
            }
        }
        reading::has_id(shared, topic, seq, id)
    }

    fn append(&mut self, shared: &Shared, ids: &mut Ids, event: &EncodedEvent) -> Seq {
        let index = self.topic_index(shared, event.topic());
        let topic = &mut self.topics[index];
        let time_ordered = ids::time_ordered(event.id());
        let hash = topic.id_seed.hash(event.id());
        let place = IdPlace { hash, topic: topic.ordinal, seq: topic.next };
        ids.newest.insert(place, time_ordered);
        self.inserted.push(place);
        topic.append(event, time_ordered)
    }

    fn topic_index(&mut self, shared: &Shared, topic: &Topic) -> usize {
        if let Some(index) = self.by_name.get(topic) {
            return *index;
        }
        let staged = {
            let view = shared.view();
            match view.topics.get(topic) {
                Some(view) => StagedTopic::of(topic, view),
                None => {
                    let staged_before = u32::try_from(self.new_topics.len()).expect("few topics");
                    let ordinal = Ordinal(view.next_ordinal().0 + staged_before);
                    self.new_topics.push((topic.clone(), ordinal));
                    StagedTopic::of(topic, &view.new_topic(topic, ordinal))
                }
            }
        };
        self.topics.push(staged);
        self.by_name.insert(topic.clone(), self.topics.len() - 1);
        self.topics.len() - 1
    }
}

/// What finding an id in a topic needs to know.
#[derive(Clone, Copy)]
struct IdContext {
    known: Option<(Ordinal, IdSeed)>,
    first: Seq,
    newest_time_ordered: u128,
}

/// Where an event of a batch is.
enum Place {
    Stored(Seq),
    EarlierInBatch(usize),
    New,
}

/// The ids of one batch, to find repetitions. Ids that rise with time, as most do, are only
/// compared with the one before.
#[derive(Default)]
struct BatchIds<'a> {
    rising: Option<(&'a Topic, u128)>,
    all: HashMap<(&'a Topic, &'a EventId), usize>,
    /// Events before this one are in `all`.
    before: usize,
    events: Vec<&'a EncodedEvent>,
}

impl<'a> BatchIds<'a> {
    /// The index of an earlier event of the same topic and id.
    fn earlier(&mut self, index: usize, event: &'a EncodedEvent) -> Option<usize> {
        let rises = match (self.rising, ids::time_ordered(event.id())) {
            (None, Some(id)) if index == 0 => Some(id),
            (Some((topic, last)), Some(id)) if topic == event.topic() && id > last => Some(id),
            _ => None,
        };
        self.events.push(event);
        if let Some(id) = rises {
            self.rising = Some((event.topic(), id));
            return None;
        }
        // Out of order, or another topic: from here on every event is compared with all.
        self.rising = None;
        for known in self.before..index {
            let event = self.events[known];
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
    fn of(name: &Topic, view: &super::topic_view::TopicView) -> Self {
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
            records: Vec::new(),
            ids: Vec::new(),
            pieces: Vec::new(),
            latest_ts: Timestamp(0),
        }
    }

    fn append(&mut self, event: &EncodedEvent, time_ordered: Option<u128>) -> Seq {
        let seq = self.next;
        let start = self.records.len();
        record::append(&mut self.records, self.record_seed, seq, event);
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
            }),
        }
        self.ids.push(event.id().clone());
        self.latest_ts = self.latest_ts.max(event.ts());
        self.newest_time_ordered = self.newest_time_ordered.max(time_ordered.unwrap_or(0));
        self.next = seq.next();
        seq
    }

    fn run(&self) -> Run {
        Run {
            topic: self.name.clone(),
            first: self.visible_next,
            count: u32::try_from(self.ids.len()).expect("a frame holds few events"),
            bytes: u32::try_from(self.records.len()).expect("a frame is below 4 GiB"),
            latest_ts: self.latest_ts,
        }
    }
}
