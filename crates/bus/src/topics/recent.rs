//! The newest events of one topic, in memory.

use std::collections::VecDeque;

use prombus_engine::ReadBudget;
use prombus_proto::Seq;

use crate::memory::Share;
use crate::topics::FeedEvent;

/// The newest events of a topic, with consecutive `seq`s.
#[derive(Debug)]
pub(crate) struct Recent {
    events: VecDeque<FeedEvent>,
    /// What the events have allocated, apart from their places in `events`.
    allocated: usize,
    share: Share,
    last_use: u64,
    /// Whether [`FeedMemory`](super::FeedMemory) knows it.
    is_known: bool,
}

impl Recent {
    pub(super) const fn new(share: Share) -> Self {
        Self { events: VecDeque::new(), allocated: 0, share, last_use: 0, is_known: false }
    }

    /// Adds events, newest last, and drops the oldest while it has more than `max_bytes`. Returns `true` if
    /// it was not known to have events.
    pub(super) fn append(
        &mut self,
        events: impl Iterator<Item = FeedEvent>,
        max_bytes: usize,
        used: u64,
    ) -> bool {
        for event in events {
            self.push(event);
        }
        while self.bytes() > max_bytes && self.events.len() > 1 {
            let oldest = self.events.pop_front().expect("there is more than one");
            self.allocated -= oldest.allocated_bytes();
            if self.events.len() < self.events.capacity() / 4 {
                self.events.shrink_to(self.events.len() * 2);
            }
        }
        self.last_use = used;
        self.share.set(self.bytes());
        !std::mem::replace(&mut self.is_known, true)
    }

    fn push(&mut self, event: FeedEvent) {
        let follows = self.events.back().is_none_or(|last| last.seq.next() == event.seq);
        if !follows {
            // Another gateway published in between: only the engine has the events without a gap.
            self.clear();
        }
        self.allocated += event.allocated_bytes();
        self.events.push_back(event);
    }

    /// Drops the events below `first`.
    pub(super) fn drop_below(&mut self, first: Seq) {
        while let Some(oldest) = self.events.pop_front_if(|event| event.seq < first) {
            self.allocated -= oldest.allocated_bytes();
        }
        self.share.set(self.bytes());
    }

    /// Returns `None` if the events have to be read from the engine.
    pub(super) fn read(
        &mut self,
        from: Seq,
        budget: ReadBudget,
        used: impl FnOnce() -> u64,
    ) -> Option<Vec<FeedEvent>> {
        let first = self.events.front()?.seq;
        let start = usize::try_from(from.0.checked_sub(first.0)?).ok()?;
        let mut bytes = 0;
        let mut found = Vec::new();
        for event in self.events.range(start.min(self.events.len())..) {
            bytes += event.json_bytes();
            if found.len() >= budget.events || (bytes > budget.bytes && !found.is_empty()) {
                break;
            }
            found.push(event.clone());
        }
        if found.is_empty() {
            return None;
        }
        self.last_use = used();
        Some(found)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    pub(super) const fn last_use(&self) -> u64 {
        self.last_use
    }

    /// Drops all events.
    pub(super) fn clear(&mut self) {
        self.events = VecDeque::new();
        self.allocated = 0;
        self.share.set(0);
    }

    /// Drops all events on behalf of [`FeedMemory`](super::FeedMemory), which then does not know it any more.
    pub(super) fn give_way(&mut self) {
        self.clear();
        self.is_known = false;
    }

    fn bytes(&self) -> usize {
        self.events.capacity() * size_of::<FeedEvent>() + self.allocated
    }
}
