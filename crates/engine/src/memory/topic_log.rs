//! The events of one topic.

use prombus_proto::{EncodedEvent, EventId, Seq, Timestamp};

use super::chunks::Chunks;
use super::id_index::IdIndex;
use super::json_arena::JsonArena;
use crate::{Bounds, Page, Position, ReadBudget, Retention, StoredEvent};

pub(super) struct TopicLog {
    /// Without gaps; the first one is at `first`.
    events: Chunks<StoredEvent>,
    arena: JsonArena,
    ids: IdIndex,
    first: Seq,
    json_bytes: usize,
}

impl Default for TopicLog {
    fn default() -> Self {
        let (events, arena) = (Chunks::default(), JsonArena::default());
        Self { events, arena, ids: IdIndex::default(), first: Seq::FIRST, json_bytes: 0 }
    }
}

impl TopicLog {
    pub(super) fn bounds(&self) -> Bounds {
        Bounds { first: self.first, next: self.next(), bytes: self.json_bytes as u64 }
    }

    fn next(&self) -> Seq {
        self.first.plus(self.events.len() as u64)
    }

    /// Iterates over the events from `from` on.
    fn from(&self, from: Seq) -> impl Iterator<Item = &StoredEvent> {
        let skipped = from.0.saturating_sub(self.first.0).min(self.events.len() as u64);
        self.events.from(usize::try_from(skipped).unwrap_or(usize::MAX))
    }

    pub(super) fn append(&mut self, event: &EncodedEvent) -> Position {
        let seq = self.next();
        if let Some(seq) = self.ids.add(event.id(), seq) {
            return Position { seq, duplicate: true };
        }
        let json = self.arena.append(event.json_bytes(seq), |out| event.write_json(seq, out));
        self.json_bytes += json.len();
        let (id, key) = (event.id().clone(), event.key().cloned());
        self.events.push_back(StoredEvent { seq, ts: event.ts(), id, key, json });
        Position { seq, duplicate: false }
    }

    pub(super) fn read(&self, from: Seq, budget: ReadBudget) -> Page {
        let mut page = Page::default();
        let mut bytes = 0usize;
        for event in self.from(from) {
            bytes = bytes.saturating_add(event.json.len());
            let fits = page.events.len() < budget.events && bytes <= budget.bytes;
            if !fits && !page.events.is_empty() {
                break;
            }
            page.events.push(event.clone());
        }
        page
    }

    pub(super) fn seek_time(&self, ts: Timestamp) -> Seq {
        let mut events = self.from(self.first);
        events.find(|event| event.ts >= ts).map_or(self.next(), |event| event.seq)
    }

    pub(super) fn seek_id(&self, id: &EventId) -> Option<Seq> {
        self.ids.find(id)
    }

    pub(super) fn trim(&mut self, below: Seq) {
        self.drop_while(|event, _| event.seq < below);
    }

    pub(super) fn retain(&mut self, rule: &Retention, now: Timestamp) {
        let oldest_retained = rule.max_age_ms.map(|age| now.minus_ms(age));
        self.drop_while(|event, bytes| {
            oldest_retained.is_some_and(|oldest| event.ts < oldest)
                || rule.max_bytes.is_some_and(|max| bytes as u64 > max)
        });
    }

    /// Drops events from the front until `drops` returns `false`, so that no gap appears.
    fn drop_while(&mut self, drops: impl Fn(&StoredEvent, usize) -> bool) {
        while let Some(oldest) = self.events.front()
            && drops(oldest, self.json_bytes)
        {
            self.json_bytes -= oldest.json.len();
            self.ids.remove_oldest(&oldest.id);
            self.first = self.first.next();
            self.events.pop_front();
        }
    }
}
