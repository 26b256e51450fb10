//! The events of one topic.

use prombus_proto::{EncodedEvent, EventId, Seq, Timestamp};

use super::chunks::Chunks;
use super::places::Places;
use crate::{Bounds, Page, Position, ReadBudget, Retention, StoredEvent};

pub(super) struct TopicLog {
    /// Without gaps; the first one has the place `first`. Each is made into JSON when it is read: most
    /// are delivered from the bus's own memory.
    events: Chunks<EncodedEvent>,
    places: Places,
    first: Seq,
    json_bytes: usize,
}

impl Default for TopicLog {
    fn default() -> Self {
        let (events, places) = (Chunks::default(), Places::default());
        Self { events, places, first: Seq::FIRST, json_bytes: 0 }
    }
}

impl TopicLog {
    pub(super) fn bounds(&self) -> Bounds {
        Bounds { first: self.first, next: self.next(), bytes: self.json_bytes as u64 }
    }

    fn next(&self) -> Seq {
        self.first.plus(self.events.len() as u64)
    }

    /// All events from `from` on, with their places.
    fn from(&self, from: Seq) -> impl Iterator<Item = (Seq, &EncodedEvent)> {
        let skipped = from.0.saturating_sub(self.first.0).min(self.events.len() as u64);
        let start = usize::try_from(skipped).unwrap_or(usize::MAX);
        (self.first.0 + skipped..).map(Seq).zip(self.events.from(start))
    }

    pub(super) fn append(&mut self, event: EncodedEvent) -> Position {
        let seq = self.next();
        if let Some(seq) = self.places.add(event.id(), seq) {
            return Position { seq, duplicate: true };
        }
        self.json_bytes += event.json_bytes(seq);
        self.events.push_back(event);
        Position { seq, duplicate: false }
    }

    pub(super) fn read(&self, from: Seq, budget: ReadBudget) -> Page {
        let mut page = Page::default();
        let mut bytes = 0usize;
        for (seq, event) in self.from(from) {
            bytes = bytes.saturating_add(event.json_bytes(seq));
            let fits = page.events.len() < budget.events && bytes <= budget.bytes;
            if !fits && !page.events.is_empty() {
                break;
            }
            let mut json = Vec::with_capacity(event.json_bytes(seq));
            event.write_json(seq, &mut json);
            page.events.push(StoredEvent {
                seq,
                ts: event.ts(),
                id: event.id().clone(),
                key: event.key().cloned(),
                json: json.into(),
            });
        }
        page
    }

    pub(super) fn seek_time(&self, ts: Timestamp) -> Seq {
        let mut events = self.from(self.first);
        events.find(|(_, event)| event.ts() >= ts).map_or(self.next(), |(seq, _)| seq)
    }

    pub(super) fn seek_id(&self, id: &EventId) -> Option<Seq> {
        self.places.find(id)
    }

    pub(super) fn trim(&mut self, below: Seq) {
        self.forget_while(|seq, _, _| seq < below);
    }

    pub(super) fn retain(&mut self, rule: &Retention, now: Timestamp) {
        let oldest_kept = rule.max_age_ms.map(|age| now.minus_ms(age));
        self.forget_while(|_, event, bytes| {
            oldest_kept.is_some_and(|oldest| event.ts() < oldest)
                || rule.max_bytes.is_some_and(|most| bytes as u64 > most)
        });
    }

    /// Forgets from the front up to the first event that is kept: what is left has no gaps.
    fn forget_while(&mut self, goes: impl Fn(Seq, &EncodedEvent, usize) -> bool) {
        while let Some(oldest) = self.events.front()
            && goes(self.first, oldest, self.json_bytes)
        {
            self.json_bytes -= oldest.json_bytes(self.first);
            self.places.forget(oldest.id());
            self.first = self.first.next();
            self.events.pop_front();
        }
    }
}
