//! The events of one topic.

use std::collections::{HashMap, VecDeque};

use prombus_proto::{EncodedEvent, EventId, Seq, Timestamp};

use crate::{Bounds, Page, Position, ReadBudget, Retention, StoredEvent};

pub(super) struct TopicLog {
    /// Without gaps; the first one has the place `first`.
    events: VecDeque<StoredEvent>,
    places: HashMap<EventId, Seq>,
    first: Seq,
    json_bytes: usize,
}

impl Default for TopicLog {
    fn default() -> Self {
        Self { events: VecDeque::new(), places: HashMap::new(), first: Seq::FIRST, json_bytes: 0 }
    }
}

impl TopicLog {
    pub(super) fn bounds(&self) -> Bounds {
        Bounds { first: self.first, next: self.next(), bytes: self.json_bytes as u64 }
    }

    fn next(&self) -> Seq {
        self.first.plus(self.events.len() as u64)
    }

    pub(super) fn append(&mut self, event: &EncodedEvent) -> Position {
        if let Some(&seq) = self.places.get(event.id()) {
            return Position { seq, duplicate: true };
        }
        let seq = self.next();
        let mut json = Vec::with_capacity(event.max_json_bytes());
        event.write_json(seq, &mut json);
        self.json_bytes += json.len();
        self.places.insert(event.id().clone(), seq);
        self.events.push_back(StoredEvent {
            seq,
            ts: event.ts(),
            id: event.id().clone(),
            key: event.key().cloned(),
            json: json.into(),
        });
        Position { seq, duplicate: false }
    }

    pub(super) fn read(&self, from: Seq, budget: ReadBudget) -> Page {
        let skipped = usize::try_from(from.0.saturating_sub(self.first.0)).unwrap_or(usize::MAX);
        let mut page = Page::default();
        let mut bytes = 0usize;
        for event in self.events.iter().skip(skipped) {
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
        self.events.iter().find(|event| event.ts >= ts).map_or(self.next(), |event| event.seq)
    }

    pub(super) fn seek_id(&self, id: &EventId) -> Option<Seq> {
        self.places.get(id).copied()
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
            self.places.remove(&oldest.id);
            self.first = oldest.seq.next();
            self.events.pop_front();
        }
    }
}
