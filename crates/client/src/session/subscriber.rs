//! One subscription: what came, what runs, what is owed to the server. No I/O.
//!
//! An event is `Unchecked` until the bus said whether it is marked (where that matters), `Ready`
//! until there is a hand free, `Running` in its handler, and `Settling` until the server answered
//! what became of it. When the connection is lost, all that does not run is forgotten: the server
//! lends it anew. What runs goes on, and if its event comes again meanwhile, that lease is its own.
//!
//! | idea | file |
//! |---|---|
//! | what to ask the server for next | `asking` |
//! | what comes of its answers | `answers` |

mod answers;
mod next_frame;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use prombus_proto::EventId;
use prombus_proto::frame::{Membership, SubscribeOptions};
use prombus_proto::limits::MAX_IN_FLIGHT;
use tokio::sync::{oneshot, watch};
use tokio_tungstenite::tungstenite::Utf8Bytes;

use super::frames;
use super::requests::earlier;
use crate::consuming::handler::{Handled, Handler};
use crate::consuming::lease_status::Lease;
use crate::consuming::received::Delivery;
use crate::event::id_within;
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
    /// How many are marked at a time: fewer where a limit of rate never allows as many.
    marks_at_once: usize,
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
            marks_at_once: frames::MOST_IDS,
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
        // Those that we are done with do not count: the server may lend others before it says that it knows.
        let in_hand = || self.entries.values().filter(|it| it.stage != Stage::Settling).count();
        let limit = most + self.made.concurrency;
        if self.entries.len() >= limit && in_hand() >= limit {
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

#[cfg(test)]
mod tests;
