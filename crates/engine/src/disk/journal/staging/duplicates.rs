//! Finds the events of a batch whose ids are already stored, staged, or repeated in the batch.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::sync::Arc;

use prombus_proto::{EncodedEvent, EventId, Seq, Topic};

use super::Staging;
use crate::disk::ids::ahead::NewestIds;
use crate::disk::ids::{IdSeed, TopicOrdinal};
use crate::disk::read::seek_id::{self, IdLookup, SeekFault};
use crate::disk::shared::{IdTables, Shared};
use crate::{CommitError, Unavailable};

/// The earlier event that has the same topic and id.
pub(super) enum DuplicateOf {
    /// An event that is stored, or staged by an earlier batch.
    Stored(Seq),
    /// The event at this index of the same batch.
    EarlierInBatch(usize),
}

/// What is needed to look up ids of one topic.
#[derive(Clone, Copy)]
struct TopicIds {
    /// `None` for a new topic, which has no ids.
    known: Option<(TopicOrdinal, IdSeed)>,
    first: Seq,
    newest_ids: NewestIds,
}

impl TopicIds {
    /// Those of a topic that the same batch deletes.
    const NONE: Self = Self {
        known: None,
        first: Seq::FIRST,
        newest_ids: NewestIds { monotonic: 0, ahead: None },
    };
}

impl Staging {
    /// Returns the indexes of duplicate `events`, ascending. There are hardly ever any.
    pub(super) fn find_duplicates(
        &self,
        shared: &Shared,
        ids: &IdTables,
        events: &[EncodedEvent],
        deleted: &[Topic],
    ) -> Result<Vec<(usize, DuplicateOf)>, CommitError> {
        let mut duplicates = Vec::new();
        let mut in_batch = BatchIds::new(events);
        let mut cached: Option<(Topic, TopicIds)> = None;
        for (index, event) in events.iter().enumerate() {
            let topic = event.topic();
            let topic_ids = match &cached {
                Some((name, topic_ids)) if name == topic => *topic_ids,
                _ => {
                    let topic_ids = if deleted.contains(topic) {
                        TopicIds::NONE
                    } else {
                        self.topic_ids(shared, topic)
                    };
                    cached = Some((topic.clone(), topic_ids));
                    topic_ids
                }
            };
            let duplicate = match in_batch.earlier(index) {
                Some(earlier) => Some(DuplicateOf::EarlierInBatch(earlier)),
                None => self.stored(shared, ids, &topic_ids, event)?.map(DuplicateOf::Stored),
            };
            duplicates.extend(duplicate.map(|of| (index, of)));
        }
        Ok(duplicates)
    }

    fn topic_ids(&self, shared: &Shared, topic: &Topic) -> TopicIds {
        if let Some(index) = self.by_name.get(topic) {
            let staged = &self.topics[*index];
            return TopicIds {
                known: Some((staged.ordinal, staged.id_seed)),
                first: staged.first,
                newest_ids: staged.newest_ids,
            };
        }
        let view = shared.view();
        let view = view.topics.get(topic);
        TopicIds {
            known: view.map(|view| (view.ordinal, view.id_seed)),
            first: view.map_or(Seq::FIRST, |view| view.first),
            newest_ids: view.map_or_else(NewestIds::default, |view| view.newest_ids),
        }
    }

    /// Returns the position of the stored or staged event with the id of `event`.
    fn stored(
        &self,
        shared: &Shared,
        ids: &IdTables,
        topic_ids: &TopicIds,
        event: &EncodedEvent,
    ) -> Result<Option<Seq>, CommitError> {
        let Some((ordinal, seed)) = topic_ids.known else {
            return Ok(None);
        };
        let (topic, id) = (event.topic(), event.id());
        if id.time_ordered().is_some_and(|id| topic_ids.newest_ids.excludes(id)) {
            return Ok(None);
        }
        if let Some(seq) = self.staged_with_id(topic, id) {
            return Ok(Some(seq));
        }
        let hash = seed.hash(id);
        let mut candidates = Vec::new();
        ids.newest.find(hash, ordinal, id.time_ordered(), &mut candidates);
        let lookup = IdLookup { hash, topic: ordinal, index: &ids.index, candidates };
        match seek_id::find_id(shared, topic, id, topic_ids.first, lookup) {
            Ok(found) => Ok(found),
            Err(SeekFault::Read(error)) => Err(error.into()),
            // Reading the whole topic instead would keep all commits waiting.
            Err(SeekFault::DamagedIndex { file, detail }) => {
                shared.report_damaged_ids(&file, detail);
                Err(index_unavailable().into())
            }
        }
    }

    fn staged_with_id(&self, topic: &Topic, id: &EventId) -> Option<Seq> {
        let staged = &self.topics[*self.by_name.get(topic)?];
        staged.ids.find(id).filter(|seq| *seq >= staged.first)
    }
}

/// Whether the id is stored is unknown until the checkpoint thread has rebuilt the index.
fn index_unavailable() -> Unavailable {
    let source = io::Error::other("the index is damaged and being rebuilt; retry later");
    Unavailable::Io { context: "looking up an event id".to_owned(), source: Arc::new(source) }
}

/// Finds repeated ids within one batch. As long as the ids are UUIDv7 of one topic, each newer than
/// the one before, as most are, comparing neighbours is enough.
struct BatchIds<'a> {
    events: &'a [EncodedEvent],
    /// The topic and newest id, as long as all ids so far were monotonic.
    monotonic: Option<(&'a Topic, u128)>,
    all: HashMap<(&'a Topic, &'a EventId), usize>,
    /// Events before this index are in `all`.
    added_to: usize,
}

impl<'a> BatchIds<'a> {
    fn new(events: &'a [EncodedEvent]) -> Self {
        Self { events, monotonic: None, all: HashMap::new(), added_to: 0 }
    }

    /// Returns the index of an earlier event with the same topic and id. Has to be called for each
    /// index in order.
    fn earlier(&mut self, index: usize) -> Option<usize> {
        let event = &self.events[index];
        let newer = match (self.monotonic, event.id().time_ordered()) {
            (None, Some(id)) if index == 0 => Some(id),
            (Some((topic, last)), Some(id)) if topic == event.topic() && id > last => Some(id),
            _ => None,
        };
        if let Some(id) = newer {
            self.monotonic = Some((event.topic(), id));
            return None;
        }
        // Out of order, or another topic: from here on every event is compared with all others.
        self.monotonic = None;
        for (known, event) in self.events.iter().enumerate().take(index).skip(self.added_to) {
            self.all.entry((event.topic(), event.id())).or_insert(known);
        }
        self.added_to = index + 1;
        match self.all.entry((event.topic(), event.id())) {
            Entry::Occupied(known) => Some(*known.get()),
            Entry::Vacant(free) => {
                free.insert(index);
                None
            }
        }
    }
}
