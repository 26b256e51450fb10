//! The events of one topic.

use std::collections::VecDeque;

use prombus_proto::{EncodedEvent, EventId, Seq, Timestamp};

use super::chunks::Chunks;
use super::id_index::IdIndex;
use super::json_arena::JsonArena;
use crate::{Arrival, Bounds, Page, Position, ReadBudget, Retention, StoredEvent};

pub(super) struct TopicLog {
    /// Without gaps; the first one is at `first`.
    events: Chunks<StoredEvent>,
    arena: JsonArena,
    ids: IdIndex,
    /// When events were stored: each entry applies from its position to before that of the next. Both rise.
    stored_at: VecDeque<(Seq, Timestamp)>,
    first: Seq,
    json_bytes: usize,
}

impl Default for TopicLog {
    fn default() -> Self {
        Self {
            events: Chunks::default(),
            arena: JsonArena::default(),
            ids: IdIndex::default(),
            stored_at: VecDeque::new(),
            first: Seq::FIRST,
            json_bytes: 0,
        }
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

    pub(super) fn append(&mut self, event: &EncodedEvent, now: Timestamp) -> Position {
        let seq = self.next();
        if let Some(seq) = self.ids.add(event.id(), seq) {
            return Position { seq, duplicate: true };
        }
        if self.stored_at.back().is_none_or(|(_, last)| *last < now) {
            self.stored_at.push_back((seq, now));
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

    pub(super) fn arrival(&self, seq: Seq) -> Option<Arrival> {
        if !(self.first..self.next()).contains(&seq) {
            return None;
        }
        let after = self.stored_at.partition_point(|(from, _)| *from <= seq);
        self.stored_at.get(after.checked_sub(1)?).map(|(_, time)| Arrival::at(*time))
    }

    pub(super) fn trim(&mut self, below: Seq) {
        self.drop_while(|event, _| event.seq < below);
    }

    pub(super) fn retain(&mut self, rule: &Retention, now: Timestamp) {
        if let Some(age) = rule.max_age_ms {
            self.trim(self.first_stored_since(now.minus_ms(age)));
        }
        if let Some(max) = rule.max_bytes {
            self.drop_while(|_, bytes| bytes as u64 > max);
        }
    }

    /// Returns the first event that was stored at `time` or later.
    fn first_stored_since(&self, time: Timestamp) -> Seq {
        let index = self.stored_at.partition_point(|(_, stored_at)| *stored_at < time);
        self.stored_at.get(index).map_or(self.next(), |(seq, _)| *seq)
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
        while self.stored_at.get(1).is_some_and(|(seq, _)| *seq <= self.first) {
            self.stored_at.pop_front();
        }
    }
}
