//! One subscription: what came, what runs, what is owed to the server. No I/O.
//!
//! An event is `Unchecked` until the bus said whether it is marked (where that matters), `Ready`
//! until there is a hand free, `Running` in its handler, and `Settling` until the server answered
//! what became of it. When the connection is lost, all that does not run is forgotten: the server
//! lends it anew. What runs goes on, and if its event comes again meanwhile, that lease is its own.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use prombus_proto::frame::{Membership, Outcome, SubscribeOptions};
use prombus_proto::limits::MAX_IN_FLIGHT;
use prombus_proto::{Chance, ErrorCode, EventId};
use tokio::sync::{oneshot, watch};
use tokio_tungstenite::tungstenite::Utf8Bytes;

use super::frames::{self, MOST_IDS};
use super::requests::{Retrying, earlier};
use crate::error::Refusal;
use crate::event::id_within;
use crate::handler::{Handled, Handler};
use crate::lease::Lease;
use crate::received::Delivery;
use crate::{Error, Result};

/// What is said about an event that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// That it is done.
    Plain,
    /// That, and that it is marked as done for so long.
    Marked(Duration),
    /// Both, and what came of it, in one commit.
    Transformed(Duration),
}

/// What a subscription is made with.
pub(crate) struct Following {
    pub(crate) which: Membership,
    /// Says `max_in_flight`.
    pub(crate) opts: SubscribeOptions,
    pub(crate) form: Form,
    pub(crate) concurrency: usize,
    pub(crate) handler: Handler,
    /// Told when the server takes it, or not.
    pub(crate) started: oneshot::Sender<Result<()>>,
    /// Told when it is over.
    pub(crate) ended: watch::Sender<Option<Result<()>>>,
}

/// What the server was asked.
#[derive(Debug)]
pub(super) enum Asked {
    Subscribe,
    Unsubscribe,
    Pause,
    Resume,
    Seen(Vec<EventId>),
    Mark(Vec<EventId>),
    Ack { ids: Vec<EventId>, marks: bool },
    Produce { id: EventId, frame: Utf8Bytes },
    Nack,
    ModAck(EventId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Away,
    Asked,
    Here,
    Leaving,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Unchecked,
    Ready,
    Running,
    Settling,
}

#[derive(Debug)]
struct Entry {
    delivery: Delivery,
    stage: Stage,
    /// When the lease is to be extended; never if there is none (any more).
    extend_at: Option<Instant>,
    /// It came again while it was settled.
    again: bool,
}

pub(super) struct Follower {
    pub(super) made: Making,
    place: Place,
    is_paused: bool,
    /// What this connection knows about that.
    said_paused: bool,
    is_stopping: bool,
    entries: HashMap<EventId, Entry>,
    unchecked: VecDeque<EventId>,
    ready: VecDeque<EventId>,
    running: usize,
    /// Handled.
    done: Vec<EventId>,
    /// Not handled, as they are marked.
    known: Vec<EventId>,
    failed: VecDeque<(EventId, String, Option<Duration>)>,
    produced: VecDeque<(EventId, Utf8Bytes)>,
    to_extend: VecDeque<EventId>,
    /// Handled, and whether the server knows is not known. Not handled again by this process; where
    /// they are to be marked, that is done before anything else over the next connection.
    finished: HashSet<EventId>,
    is_marking: bool,
    unanswered: usize,
    /// What failed is not tried again before this.
    not_before: Option<Instant>,
    failures: u32,
    next_look: Option<Instant>,
    lease: Duration,
    waiting: Vec<oneshot::Sender<Result<()>>>,
}

/// What a follower was made with, as far as it stays.
pub(super) struct Making {
    pub(super) which: Membership,
    opts: SubscribeOptions,
    form: Form,
    concurrency: usize,
    pub(super) handler: Handler,
    started: Option<oneshot::Sender<Result<()>>>,
    ended: watch::Sender<Option<Result<()>>>,
    max_frame_bytes: usize,
}

/// The shortest lease that the server extends to.
const SHORTEST_EXTENSION: Duration = Duration::from_secs(1);

impl Follower {
    pub(super) fn new(following: Following, max_frame_bytes: usize) -> Self {
        let Following { which, opts, form, concurrency, handler, started, ended } = following;
        let lease = opts.ack_timeout_ms.map_or(Duration::ZERO, Duration::from_millis);
        let started = Some(started);
        Self {
            made: Making {
                which,
                opts,
                form,
                concurrency,
                handler,
                started,
                ended,
                max_frame_bytes,
            },
            place: Place::Away,
            is_paused: false,
            said_paused: false,
            is_stopping: false,
            entries: HashMap::new(),
            unchecked: VecDeque::new(),
            ready: VecDeque::new(),
            running: 0,
            done: Vec::new(),
            known: Vec::new(),
            failed: VecDeque::new(),
            produced: VecDeque::new(),
            to_extend: VecDeque::new(),
            finished: HashSet::new(),
            is_marking: false,
            unanswered: 0,
            not_before: None,
            failures: 0,
            next_look: None,
            lease,
            waiting: Vec::new(),
        }
    }

    /// Whether it has stopped as it was asked to.
    pub(super) fn is_over(&self) -> bool {
        self.is_stopping && self.place == Place::Away && self.running == 0 && !self.owes_marks()
    }

    fn owes_marks(&self) -> bool {
        matches!(self.made.form, Form::Marked(_)) && !self.finished.is_empty()
    }

    pub(super) fn end(self, result: Result<()>) {
        let error = result.clone().err().unwrap_or(Error::Ended);
        if let Some(started) = self.made.started {
            let _ = started.send(Err(error.clone()));
        }
        for reply in self.waiting {
            let _ = reply.send(Err(error.clone()));
        }
        for entry in self.entries.values() {
            entry.delivery.lease.lose();
        }
        self.made.ended.send_replace(Some(result));
    }

    /// Pauses or resumes. `reply` hears when the server knows; one that is not connected need not.
    pub(super) fn set_paused(&mut self, is_paused: bool, reply: oneshot::Sender<Result<()>>) {
        self.is_paused = is_paused;
        if self.place == Place::Here && self.said_paused != is_paused {
            self.waiting.push(reply);
        } else {
            let _ = reply.send(Ok(()));
        }
    }

    /// Begins nothing new, and is over when what runs is done.
    pub(super) fn stop(&mut self) {
        self.is_stopping = true;
        self.is_paused = true;
        // Their leases end when the server hears that we leave.
        self.entries.retain(|_, entry| matches!(entry.stage, Stage::Running | Stage::Settling));
        self.unchecked.clear();
        self.ready.clear();
    }

    /// An event came. Fails where the server lends more than it was asked for.
    pub(super) fn came(
        &mut self,
        json: Bytes,
        attempt: u32,
        left: Duration,
        now: Instant,
    ) -> Result<()> {
        let id = id_within(&json)?;
        self.lease = self.lease.max(left);
        let extend_at = now + left * 2 / 5;
        if let Some(entry) = self.entries.get_mut(&id) {
            // Its lease was over, and is ours again.
            entry.extend_at = Some(extend_at);
            entry.again = entry.stage == Stage::Settling;
            entry.delivery.attempt = attempt;
            entry.delivery.lease.regain();
            self.next_look = earlier(self.next_look, Some(extend_at));
            return Ok(());
        }
        if self.is_stopping || self.place != Place::Here {
            return Ok(());
        }
        let most = self.most_in_flight();
        if self.entries.len() >= most + self.made.concurrency {
            let more = format!("more than {most} events of {} are lent", self.made.which.topic);
            return Err(Error::NotUnderstood(more));
        }
        let stage = if self.finished.contains(&id) {
            self.done.push(id.clone());
            Stage::Settling
        } else if self.made.form == Form::Plain {
            self.ready.push_back(id.clone());
            Stage::Ready
        } else {
            self.unchecked.push_back(id.clone());
            Stage::Unchecked
        };
        let lease = Arc::new(Lease::default());
        let delivery = Delivery { json, attempt, deadline: now + left, lease };
        self.next_look = earlier(self.next_look, Some(extend_at));
        let entry = Entry { delivery, stage, extend_at: Some(extend_at), again: false };
        self.entries.insert(id, entry);
        Ok(())
    }

    /// The next event for the handler, if there is one and a hand free.
    pub(super) fn start(&mut self) -> Option<(EventId, Delivery)> {
        while self.running < self.made.concurrency && !self.is_stopping {
            let id = self.ready.pop_front()?;
            // Those whose lease was lost meanwhile are gone.
            if let Some(entry) = self.entries.get_mut(&id).filter(|it| it.stage == Stage::Ready) {
                entry.stage = Stage::Running;
                self.running += 1;
                return Some((id, entry.delivery.clone()));
            }
        }
        None
    }

    /// What a handler made of an event.
    pub(super) fn handled(&mut self, id: EventId, handled: Handled) {
        let Some(entry) = self.entries.get_mut(&id).filter(|it| it.stage == Stage::Running) else {
            return;
        };
        self.running -= 1;
        entry.stage = Stage::Settling;
        let is_lent = entry.extend_at.is_some() && self.place == Place::Here;
        match (handled, self.made.form) {
            (Handled::Done, form) => {
                self.remember(id.clone());
                // A mark counts even where the lease is gone.
                if is_lent || (self.place == Place::Here && form != Form::Plain) {
                    self.done.push(id);
                } else {
                    self.entries.remove(&id);
                }
            }
            _ if !is_lent => drop(self.entries.remove(&id)),
            (Handled::Produced(events), Form::Transformed(ttl)) => {
                let frame = frames::ack_and_publish(&self.made.which, &id, ttl, events);
                let (size, most) = (frame.len(), self.made.max_frame_bytes);
                if size > most {
                    let reason = format!("its events make a frame of {size} bytes, above {most}");
                    self.give_back(id, reason, None);
                } else {
                    self.produced.push_back((id, frame));
                }
            }
            (Handled::Produced(_), _) => self.done.push(id),
            (Handled::Failed { reason, delay }, _) => self.give_back(id, reason, delay),
        }
    }

    fn remember(&mut self, id: EventId) {
        // Marks are never forgotten, and there are no more than were lent. Of others, those may
        // never come again that somebody else got.
        let most = 2 * (self.most_in_flight() + self.made.concurrency);
        if self.made.form == Form::Plain && self.finished.len() >= most {
            self.finished.clear();
        }
        self.finished.insert(id);
    }

    fn most_in_flight(&self) -> usize {
        self.made.opts.max_in_flight.unwrap_or(MAX_IN_FLIGHT) as usize
    }

    fn give_back(&mut self, id: EventId, reason: String, delay: Option<Duration>) {
        self.entries.remove(&id);
        self.failed.push_back((id, reason, delay));
    }

    /// The next frame for the server, and what it asks.
    pub(super) fn next_frame(&mut self, now: Instant) -> Option<(Utf8Bytes, Asked)> {
        let next = match self.place {
            Place::Away => self.next_when_away(now),
            Place::Here => self.next_when_here(now),
            Place::Asked | Place::Leaving => None,
        };
        self.unanswered += usize::from(next.is_some());
        next
    }

    fn next_when_away(&mut self, now: Instant) -> Option<(Utf8Bytes, Asked)> {
        if self.is_marking || self.not_before.is_some_and(|at| at > now) {
            return None;
        }
        if let (Form::Marked(ttl), true) = (self.made.form, self.owes_marks()) {
            // Before anything is lent again: others may ask whether these are marked.
            self.is_marking = true;
            let ids: Vec<_> = self.finished.iter().take(MOST_IDS).cloned().collect();
            return Some((frames::mark(&self.made.which, &ids, ttl), Asked::Mark(ids)));
        }
        if self.is_paused {
            // It comes back when it is resumed, so that nothing is lent to it meanwhile.
            return None;
        }
        self.place = Place::Asked;
        Some((frames::subscribe(&self.made.which, &self.made.opts), Asked::Subscribe))
    }

    fn next_when_here(&mut self, now: Instant) -> Option<(Utf8Bytes, Asked)> {
        let which = &self.made.which;
        if self.said_paused != self.is_paused {
            self.said_paused = self.is_paused;
            return Some(match self.is_paused {
                true => (frames::pause(which), Asked::Pause),
                false => (frames::resume(which), Asked::Resume),
            });
        }
        if let Some((id, reason, delay)) = self.failed.pop_front() {
            return Some((frames::nack(which, id, reason, delay), Asked::Nack));
        }
        if let Some(id) = self.to_extend.pop_front() {
            let extend = self.lease.max(SHORTEST_EXTENSION);
            return Some((frames::modack(which, id.clone(), extend), Asked::ModAck(id)));
        }
        if self.not_before.is_none_or(|at| at <= now) {
            if !self.known.is_empty() {
                let ids = take_some(&mut self.known);
                return Some((frames::ack(which, &ids, None), Asked::Ack { ids, marks: false }));
            }
            if !self.done.is_empty() {
                let ids = take_some(&mut self.done);
                let mark = match self.made.form {
                    Form::Marked(ttl) => Some(ttl),
                    Form::Plain | Form::Transformed(_) => None,
                };
                let frame = frames::ack(which, &ids, mark);
                return Some((frame, Asked::Ack { ids, marks: mark.is_some() }));
            }
            if let Some((id, frame)) = self.produced.pop_front() {
                return Some((frame.clone(), Asked::Produce { id, frame }));
            }
            if !self.unchecked.is_empty() {
                let count = self.unchecked.len().min(MOST_IDS);
                let ids: Vec<_> = self.unchecked.drain(..count).collect();
                return Some((frames::seen(which, &ids), Asked::Seen(ids)));
            }
        }
        if self.is_stopping && self.running == 0 && self.owes_nothing() && self.unanswered == 0 {
            self.place = Place::Leaving;
            return Some((frames::unsubscribe(which), Asked::Unsubscribe));
        }
        None
    }

    fn owes_nothing(&self) -> bool {
        self.done.is_empty() && self.known.is_empty() && self.produced.is_empty()
    }

    /// The server did what it was asked. Fails where the answer is none to that.
    pub(super) fn answered(&mut self, asked: Asked, outcome: Outcome) -> Result<()> {
        self.unanswered -= 1;
        // These say nothing about the storage.
        let is_small =
            matches!(asked, Asked::Pause | Asked::Resume | Asked::Nack | Asked::ModAck(_));
        match asked {
            Asked::Subscribe => {
                self.place = Place::Here;
                self.said_paused = false;
                if let Some(started) = self.made.started.take() {
                    let _ = started.send(Ok(()));
                }
            }
            Asked::Unsubscribe => self.leave(),
            Asked::Pause | Asked::Resume => self.tell_waiting(),
            Asked::Seen(ids) => self.checked(ids, outcome)?,
            Asked::Mark(ids) => {
                self.is_marking = false;
                for id in ids {
                    self.finished.remove(&id);
                }
            }
            Asked::Ack { ids, .. } => {
                for id in ids {
                    self.finished.remove(&id);
                    self.settled(id);
                }
            }
            Asked::Produce { id, .. } => self.settled(id),
            Asked::Nack | Asked::ModAck(_) => {}
        }
        if !is_small {
            (self.failures, self.not_before) = (0, None);
        }
        Ok(())
    }

    fn checked(&mut self, ids: Vec<EventId>, outcome: Outcome) -> Result<()> {
        let marked = seen_of(outcome)?;
        for id in ids {
            let Some(entry) = self.entries.get_mut(&id).filter(|it| it.stage == Stage::Unchecked)
            else {
                continue;
            };
            if marked.contains(&id) {
                entry.stage = Stage::Settling;
                self.known.push(id);
            } else {
                entry.stage = Stage::Ready;
                self.ready.push_back(id);
            }
        }
        Ok(())
    }

    /// The server knows what became of it.
    fn settled(&mut self, id: EventId) {
        match self.entries.get_mut(&id) {
            // It came again before that was known, so that it is to be said again.
            Some(entry) if entry.again => {
                entry.again = false;
                self.known.push(id);
            }
            _ => drop(self.entries.remove(&id)),
        }
    }

    /// The server refused what it was asked. Fails where the subscription cannot go on.
    pub(super) fn refused(
        &mut self,
        asked: Asked,
        refusal: Refusal,
        now: Instant,
        retrying: &Retrying,
        chance: &dyn Chance,
    ) -> Result<()> {
        self.unanswered -= 1;
        let Refusal { code, retry_after, .. } = &refusal;
        // A rate that no time helps is final.
        let may_pass = match code {
            ErrorCode::RateLimited => retry_after.is_some(),
            code => code.is_retryable(),
        };
        if may_pass && !matches!(asked, Asked::Nack | Asked::ModAck(_)) {
            let wait = retry_after.unwrap_or_else(|| retrying.wait(self.failures, chance));
            self.failures += 1;
            self.not_before = self.not_before.max(Some(now + wait));
        }
        match asked {
            Asked::Subscribe if may_pass => self.place = Place::Away,
            Asked::Subscribe => return Err(refusal.into()),
            Asked::Unsubscribe => self.leave(),
            Asked::Pause | Asked::Resume => {
                for reply in self.waiting.drain(..) {
                    let _ = reply.send(Err(refusal.clone().into()));
                }
            }
            Asked::Seen(ids) if may_pass => {
                for id in ids.into_iter().rev() {
                    self.unchecked.push_front(id);
                }
            }
            Asked::Seen(_) => return Err(refusal.into()),
            Asked::Mark(ids) => {
                self.is_marking = false;
                if !may_pass {
                    self.cannot_mark(&ids, &refusal);
                }
            }
            Asked::Ack { ids, marks } if may_pass => {
                if marks { &mut self.done } else { &mut self.known }.extend(ids);
            }
            Asked::Ack { ids, marks } => {
                if marks {
                    self.cannot_mark(&ids, &refusal);
                }
                for id in ids {
                    self.finished.remove(&id);
                    self.entries.remove(&id);
                }
            }
            Asked::Produce { id, .. } if *code == ErrorCode::Conflict => self.known.push(id),
            Asked::Produce { id, .. } if *code == ErrorCode::LeaseLost => {
                self.entries.remove(&id);
            }
            Asked::Produce { id, frame } if may_pass => self.produced.push_front((id, frame)),
            Asked::Produce { id, .. } => self.give_back(id, refusal.to_string(), None),
            Asked::ModAck(id) if *code == ErrorCode::LeaseLost => self.lease_lost(&id),
            Asked::Nack | Asked::ModAck(_) => {}
        }
        Ok(())
    }

    fn cannot_mark(&mut self, ids: &[EventId], refusal: &Refusal) {
        let Membership { topic, group } = &self.made.which;
        let count = ids.len();
        tracing::warn!(%topic, %group, count, "events are handled and cannot be marked: {refusal}");
        for id in ids {
            self.finished.remove(id);
        }
    }

    fn lease_lost(&mut self, id: &EventId) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        match entry.stage {
            Stage::Running => {
                entry.extend_at = None;
                entry.delivery.lease.lose();
            }
            Stage::Unchecked | Stage::Ready => drop(self.entries.remove(id)),
            Stage::Settling => {}
        }
    }

    /// The connection is gone, and with it what was asked and not answered.
    pub(super) fn lost(&mut self) {
        // What was handled stays in `finished` until an answer says that it is marked.
        self.is_marking = false;
        self.unanswered = 0;
        self.not_before = None;
        self.leave();
    }

    /// This connection has no such subscription (any more).
    fn leave(&mut self) {
        self.place = Place::Away;
        self.said_paused = false;
        self.next_look = None;
        self.tell_waiting();
        self.entries.retain(|_, entry| {
            entry.extend_at = None;
            entry.delivery.lease.lose();
            entry.stage == Stage::Running
        });
        for list in [&mut self.done, &mut self.known] {
            list.clear();
        }
        self.unchecked.clear();
        self.ready.clear();
        self.failed.clear();
        self.produced.clear();
        self.to_extend.clear();
    }

    fn tell_waiting(&mut self) {
        for reply in self.waiting.drain(..) {
            let _ = reply.send(Ok(()));
        }
    }

    /// What time brings: leases that are to be extended.
    pub(super) fn wake(&mut self, now: Instant) {
        if self.next_look.is_none_or(|at| at > now) {
            return;
        }
        self.next_look = None;
        let again_at = now + self.lease.max(SHORTEST_EXTENSION) * 2 / 5;
        for (id, entry) in &mut self.entries {
            if let Some(at) = entry.extend_at.as_mut() {
                if *at <= now {
                    *at = again_at;
                    self.to_extend.push_back(id.clone());
                }
                self.next_look = earlier(self.next_look, Some(*at));
            }
        }
    }

    pub(super) fn next_wake(&self, now: Instant) -> Option<Instant> {
        earlier(self.next_look, self.not_before.filter(|at| *at > now))
    }
}

fn take_some(ids: &mut Vec<EventId>) -> Vec<EventId> {
    if ids.len() <= MOST_IDS { std::mem::take(ids) } else { ids.drain(..MOST_IDS).collect() }
}

fn seen_of(outcome: Outcome) -> Result<HashSet<EventId>> {
    match outcome {
        Outcome::Seen(ids) => Ok(ids.into_iter().collect()),
        other => Err(Error::NotUnderstood(format!("an answer to SEEN: {other:?}"))),
    }
}

#[cfg(test)]
#[path = "follower_tests.rs"]
mod tests;
