//! The events a group is about to lend.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use prombus_engine::{Damaged, Engine, ReadBudget, ReadError};
use prombus_proto::Seq;

use super::round::{Dying, Pending};
use crate::groups::leases::Leases;
use crate::topics::FeedEvent;
use crate::topics::TopicInUse;

/// The events a group is about to lend: some that were never lent, some that come again.
#[derive(Debug)]
pub(super) struct Fetched {
    last: Seq,
    new: VecDeque<FeedEvent>,
    again: BTreeMap<Seq, FeedEvent>,
}

/// How much is fetched ahead.
const BUDGET: ReadBudget = ReadBudget { events: 1024, bytes: 256 << 10 };

impl Fetched {
    /// Nothing yet, of a topic that goes up to `last`.
    pub(super) const fn up_to(last: Seq) -> Self {
        Self { last, new: VecDeque::new(), again: BTreeMap::new() }
    }

    pub(super) fn grew_to(&mut self, last: Seq) {
        self.last = self.last.max(last);
    }

    /// The event to lend next, if it was fetched: what comes again before what is new.
    pub(super) fn next(&self, leases: &Leases) -> Option<&FeedEvent> {
        match leases.first_again() {
            Some(seq) => self.again.get(&seq),
            None => self.new.front(),
        }
    }

    pub(super) fn take(&mut self, seq: Seq) -> Option<FeedEvent> {
        if self.new.front().is_some_and(|event| event.seq == seq) {
            return self.new.pop_front();
        }
        self.again.remove(&seq)
    }

    /// Fetches until there is an event to lend. Answers whether there is one.
    pub(super) async fn fetch(
        &mut self,
        leases: &mut Leases,
        pending: &mut Pending,
        engine: &Arc<dyn Engine>,
        topic: &TopicInUse,
    ) -> Result<bool, ReadError> {
        loop {
            let again = leases.first_again();
            if again.is_some_and(|seq| self.again.contains_key(&seq)) {
                return Ok(true);
            }
            let from = again.unwrap_or_else(|| leases.next_new());
            if again.is_none() {
                // What comes again goes before what is new, also when the store is slow to note
                // its last attempt.
                if leases.waits_for_record() {
                    return Ok(false);
                }
                // What was new may have been forgotten meanwhile.
                while self.new.front().is_some_and(|event| event.seq < from) {
                    self.new.pop_front();
                }
                if !leases.has_room() || (self.new.is_empty() && from > self.last) {
                    return Ok(false);
                }
                if !self.new.is_empty() {
                    return Ok(true);
                }
            }
            match topic.feed.read(engine, &topic.topic, from, BUDGET).await {
                Ok(events) if events.first().is_some_and(|first| first.seq == from) => {
                    if again.is_some() {
                        let wanted = events.into_iter().filter(|event| leases.is_again(event.seq));
                        self.again = wanted.map(|event| (event.seq, event)).collect();
                    } else {
                        self.new = events.into();
                    }
                }
                Ok(_) => {
                    let first = engine.bounds(&topic.topic).await?.first;
                    if first <= from {
                        self.last = from.previous();
                        return Ok(false);
                    }
                    tracing::warn!(topic = %topic.topic, %from, to = %first.previous(),
                        "a group loses events that are no longer kept");
                    leases.forget_below(first);
                    pending.changed = true;
                }
                Err(ReadError::Damaged(damaged)) => {
                    pending.dying.push(pass_over(leases, again, &damaged));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The event `seq`, unless it cannot be had any more.
    pub(super) async fn one(
        engine: &Arc<dyn Engine>,
        topic: &TopicInUse,
        seq: Seq,
    ) -> Result<Option<FeedEvent>, ReadError> {
        match topic.feed.read(engine, &topic.topic, seq, ReadBudget::of_events(1)).await {
            Ok(events) => Ok(events.into_iter().find(|event| event.seq == seq)),
            Err(ReadError::Damaged(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Gives up on events that cannot be read back; the dead letter says so.
fn pass_over(leases: &mut Leases, again: Option<Seq>, damaged: &Damaged) -> Dying {
    tracing::error!("a group passes over what it cannot read: {damaged}");
    let error = damaged.to_string();
    match (again, damaged) {
        (Some(seq), _) => {
            let attempts = leases.attempts(seq);
            leases.condemn(seq);
            Dying::new(Some(seq), error, attempts)
        }
        (None, Damaged::Events { last, .. }) => {
            leases.pass_over(*last);
            Dying::new(None, error, 0)
        }
        (None, Damaged::State(_)) => {
            leases.pass_over(leases.next_new());
            Dying::new(None, error, 0)
        }
    }
}
