//! The events a group is about to deliver.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use prombus_proto::Seq;

use crate::groups::leases::Leases;
use crate::topics::FeedEvent;

/// Events read ahead: new ones in order, redeliveries, and one to deliver alone.
#[derive(Debug)]
pub(super) struct Fetched {
    topic_end: Seq,
    new: VecDeque<FeedEvent>,
    redeliveries: BTreeMap<Seq, FeedEvent>,
    suspect: Option<FeedEvent>,
    /// Bytes of all events, overhead included.
    bytes: usize,
    /// How many events the next read asks for, even if members can take fewer. Doubles from read to read, until
    /// events are dropped that nobody took.
    ahead: usize,
    /// When an event was read or taken last.
    used_at: Option<Instant>,
}

/// Events that nobody takes are dropped after this time: others need the memory.
const KEEP_TIME: Duration = Duration::from_secs(1);

/// What to deliver next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// This event, which was fetched.
    Event(Seq),
    /// This event, which has to be read first.
    Read(Seq),
    Nothing,
}

impl Fetched {
    pub(super) fn up_to(topic_end: Seq) -> Self {
        let (new, redeliveries) = (VecDeque::new(), BTreeMap::new());
        Self { topic_end, new, redeliveries, suspect: None, bytes: 0, ahead: 1, used_at: None }
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn topic_grew(&mut self, topic_end: Seq) {
        self.topic_end = self.topic_end.max(topic_end);
    }

    /// Records that the topic has no event `seq`.
    pub(super) const fn ends_before(&mut self, seq: Seq) {
        self.topic_end = seq.previous();
    }

    /// Redeliveries come before new events, even while the cursor with their last attempt is still being
    /// stored.
    pub(super) fn next(&mut self, leases: &Leases) -> Next {
        if let Some(seq) = leases.first_redelivery() {
            let is_fetched = self.redeliveries.contains_key(&seq);
            return if is_fetched { Next::Event(seq) } else { Next::Read(seq) };
        }
        if leases.awaits_record() {
            return Next::Nothing;
        }
        let seq = leases.next_new();
        // Retention may have removed events since they were fetched.
        while self.new.front().is_some_and(|event| event.seq < seq) {
            let passed = self.new.pop_front();
            self.subtract(&passed);
        }
        match self.new.front() {
            _ if !leases.has_room() => Next::Nothing,
            Some(event) => Next::Event(event.seq),
            None if seq > self.topic_end => Next::Nothing,
            None => Next::Read(seq),
        }
    }

    /// Returns how many events to read for members that can take `credit` now.
    pub(super) fn read_size(&self, credit: usize) -> usize {
        credit.max(self.ahead)
    }

    /// When [`Fetched::drop_unused`] has something to drop, unless an event is taken before.
    pub(super) fn unused_at(&self) -> Option<Instant> {
        Some(self.used_at? + KEEP_TIME).filter(|_| self.has_more_than_next())
    }

    /// Drops the events behind the next one if none has been taken for a while.
    pub(super) fn drop_unused(&mut self, now: Instant) {
        if self.unused_at().is_some_and(|at| at <= now) {
            self.drop_all_but_next();
        }
    }

    /// Drops the events behind the next one. They are read again when they are needed.
    pub(super) fn drop_all_but_next(&mut self) {
        if !self.has_more_than_next() {
            return;
        }
        self.new.truncate(1);
        self.new.shrink_to_fit();
        while self.redeliveries.len() > 1 {
            self.redeliveries.pop_last();
        }
        self.ahead = 1;
        self.count_bytes();
    }

    fn has_more_than_next(&self) -> bool {
        self.new.len() > 1 || self.redeliveries.len() > 1
    }

    /// Takes an event that [`Fetched::next`] named.
    pub(super) fn take(&mut self, seq: Seq, now: Instant) -> Option<FeedEvent> {
        self.used_at = Some(now);
        let event = if self.new.front().is_some_and(|event| event.seq == seq) {
            self.new.pop_front()
        } else {
            self.redeliveries.remove(&seq)
        };
        self.subtract(&event);
        event
    }

    /// Takes the event `seq`, which is delivered alone, if it was fetched.
    pub(super) fn take_suspect(&mut self, seq: Seq) -> Option<FeedEvent> {
        let event = self.suspect.take_if(|event| event.seq == seq);
        self.subtract(&event);
        event
    }

    /// Subtracts the bytes of an event that was removed.
    fn subtract(&mut self, event: &Option<FeedEvent>) {
        self.bytes -= event.as_ref().map_or(0, event_bytes);
    }

    pub(super) fn has_suspect(&self, seq: Seq) -> bool {
        self.suspect.as_ref().is_some_and(|event| event.seq == seq)
    }

    /// Keeps events that were read because the first of them is to be delivered next.
    pub(super) fn put(&mut self, events: Vec<FeedEvent>, leases: &Leases, now: Instant) {
        self.used_at = Some(now);
        self.ahead = events.len() * 2;
        let first = events.first().map(|event| event.seq);
        if first.is_some() && first == leases.first_suspect() {
            self.suspect = events.into_iter().next();
        } else if leases.first_redelivery().is_some() {
            let wanted = events.into_iter().filter(|event| leases.is_redeliverable(event.seq));
            self.redeliveries = wanted.map(|event| (event.seq, event)).collect();
        } else {
            self.new = events.into();
        }
        self.count_bytes();
    }

    fn count_bytes(&mut self) {
        let kept = self.new.iter().chain(self.redeliveries.values()).chain(&self.suspect);
        self.bytes = kept.map(event_bytes).sum();
    }
}

fn event_bytes(event: &FeedEvent) -> usize {
    size_of::<FeedEvent>() + event.allocated_bytes()
}
