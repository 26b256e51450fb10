//! The events of one topic.

use prombus_proto::{EncodedEvent, EventId, Seq, Timestamp};

use super::chunks::Chunks;
use super::json_pages::JsonPages;
use super::places::Places;
use crate::{Bounds, Page, Position, ReadBudget, Retention, StoredEvent};

pub(super) struct TopicLog {
    /// Without gaps; the first one has the place `first`.
    events: Chunks<StoredEvent>,
    pages: JsonPages,
    places: Places,
    first: Seq,
    json_bytes: usize,
}

impl Default for TopicLog {
    fn default() -> Self {
        let (events, pages) = (Chunks::default(), JsonPages::default());
        Self { events, pages, places: Places::default(), first: Seq::FIRST, json_bytes: 0 }
    }
}

impl TopicLog {
    pub(super) fn bounds(&self) -> Bounds {
        Bounds { first: self.first, next: self.next(), bytes: self.json_bytes as u64 }
    }

    fn next(&self) -> Seq {
        self.first.plus(self.events.len() as u64)
    }

    /// All events from `from` on.
    fn from(&self, from: Seq) -> impl Iterator<Item = &StoredEvent> {
        let skipped = from.0.saturating_sub(self.first.0).min(self.events.len() as u64);
        self.events.from(usize::try_from(skipped).unwrap_or(usize::MAX))
    }

    pub(super) fn append(&mut self, event: &EncodedEvent) -> Position {
        let seq = self.next();
        if let Some(seq) = self.places.add(event.id(), seq) {
            return Position { seq, duplicate: true };
        }
        let json = self.pages.keep(event.json_bytes(seq), |page| event.write_json(seq, page));
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
        self.places.find(id)
    }

    pub(super) fn trim(&mut self, below: Seq) {
        self.forget_while(|event, _| event.seq < below);
    }

    pub(super) fn retain(&mut self, rule: &Retention, now: Timestamp) {
        let oldest_kept = rule.max_age_ms.map(|age| now.minus_ms(age));
        self.forget_while(|event, bytes| {
            oldest_kept.is_some_and(|oldest| event.ts < oldest)
                || rule.max_bytes.is_some_and(|most| bytes as u64 > most)
        });
    }

    /// Forgets from the front up to the first event that is kept: what is left has no gaps.
    fn forget_while(&mut self, goes: impl Fn(&StoredEvent, usize) -> bool) {
        while let Some(oldest) = self.events.front()
            && goes(oldest, self.json_bytes)
        {
            self.json_bytes -= oldest.json.len();
            self.places.forget(&oldest.id);
            self.first = self.first.next();
            self.events.pop_front();
        }
    }
}
