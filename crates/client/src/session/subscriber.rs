//! One subscription: the events it holds, the handlers that run, and the frames it owes the server.
//!
//! An event is `Unchecked` until the server has looked up its mark (in the modes that use
//! marks), `Ready` until a handler is free, `Running` in its handler, and `Settling` until the
//! server has confirmed the result. When the connection is lost, every event that is not running
//! is dropped, because the server delivers it again. Running handlers continue; if their event is
//! redelivered meanwhile, they take over the new lease.
//!
//! - `deliveries`: the events this subscription holds, and their leases
//! - `outbound`: questions and results to be sent
//! - `next_frame`: which frame to send next
//! - `answers`: what the server's answers change

mod answers;
mod deliveries;
mod next_frame;
mod outbound;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use prombus_proto::EventId;
use prombus_proto::frame::{AfterNack, EndReason, Membership, SubscribeOptions};
use prombus_proto::limits::MAX_IN_FLIGHT;
use tokio::sync::{oneshot, watch};
use tokio_tungstenite::tungstenite::Utf8Bytes;

use super::frames;
use super::requests::earlier;
use crate::consuming::handler::{Handled, Handler};
use crate::consuming::received::Delivery;
use crate::event::id_within;
use crate::{Error, Result};
use deliveries::{Deliveries, Stage};
use outbound::{Failure, Outbound};

/// How a handled event is reported to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AckMode {
    /// Acknowledges it.
    Plain,
    /// Acknowledges it and marks it as handled for this long, in one commit.
    Marked(Duration),
    /// Acknowledges it, marks it for this long and publishes the handler's output, in one commit.
    Transformed(Duration),
}

pub(crate) struct SubscribeRequest {
    pub(crate) membership: Membership,
    /// `max_in_flight` is always set.
    pub(crate) opts: SubscribeOptions,
    pub(crate) mode: AckMode,
    pub(crate) concurrency: usize,
    pub(crate) handler: Handler,
    /// Resolves with the server's first answer.
    pub(crate) started: oneshot::Sender<Result<()>>,
    pub(crate) ended: watch::Sender<Option<Result<()>>>,
}

/// A frame that was sent for a subscription and is not answered yet.
#[derive(Debug)]
pub(super) enum PendingOp {
    Subscribe,
    Unsubscribe,
    Pause,
    Resume,
    Seen(Vec<EventId>),
    Mark(Vec<EventId>),
    Ack { ids: Vec<EventId>, marks: bool },
    AckAndPublish { id: EventId, frame: Utf8Bytes },
    Nack,
    ModAck(EventId),
}

/// The subscription as the server knows it over the current connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Unsubscribed,
    /// Unsubscribed, with a MARK on its way that has to be answered before SUBSCRIBE is sent.
    Marking,
    Subscribing,
    Subscribed {
        /// As last requested over this connection.
        is_paused: bool,
    },
    Unsubscribing,
}

/// What the program asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Active,
    Paused,
    Stopped,
}

pub(super) struct Subscriber {
    pub(super) spec: Spec,
    link: Link,
    wanted: Wanted,
    deliveries: Deliveries,
    outbound: Outbound,
    /// Events handled here whose result the server has not confirmed. They are not handled again
    /// by this process; in `AckMode::Marked`, they are marked before the next SUBSCRIBE.
    unconfirmed: HashSet<EventId>,
    /// Lowered when a rate limit can never admit this many marks at once.
    marks_per_frame: usize,
    /// Frames sent over this connection and not answered yet.
    unanswered: usize,
    /// Refused frames are not sent again before this.
    retry_at: Option<Instant>,
    failures: u32,
    /// Callers waiting until the server has paused or resumed the subscription.
    pause_replies: Vec<oneshot::Sender<Result<()>>>,
}

/// The parts of a [`SubscribeRequest`] that outlive SUBSCRIBE.
pub(super) struct Spec {
    pub(super) membership: Membership,
    opts: SubscribeOptions,
    mode: AckMode,
    concurrency: usize,
    pub(super) handler: Handler,
    /// `None` once the server has answered.
    started: Option<oneshot::Sender<Result<()>>>,
    ended: watch::Sender<Option<Result<()>>>,
    max_frame_bytes: usize,
}

impl Spec {
    fn max_in_flight(&self) -> usize {
        self.opts.max_in_flight.unwrap_or(MAX_IN_FLIGHT) as usize
    }
}

impl Subscriber {
    pub(super) fn new(request: SubscribeRequest, max_frame_bytes: usize) -> Self {
        let SubscribeRequest { membership, opts, mode, concurrency, handler, started, ended } =
            request;
        let lease = opts.ack_timeout_ms.map_or(Duration::ZERO, Duration::from_millis);
        let started = Some(started);
        Self {
            spec: Spec {
                membership,
                opts,
                mode,
                concurrency,
                handler,
                started,
                ended,
                max_frame_bytes,
            },
            link: Link::Unsubscribed,
            wanted: Wanted::Active,
            deliveries: Deliveries::new(lease),
            outbound: Outbound::default(),
            unconfirmed: HashSet::new(),
            marks_per_frame: frames::MAX_IDS,
            unanswered: 0,
            retry_at: None,
            failures: 0,
            pause_replies: Vec::new(),
        }
    }

    /// Returns `true` if the subscription was stopped and nothing is left to do.
    pub(super) fn is_over(&self) -> bool {
        self.wanted == Wanted::Stopped
            && matches!(self.link, Link::Unsubscribed | Link::Marking)
            && self.deliveries.running() == 0
            && !self.owes_marks()
    }

    fn is_subscribed(&self) -> bool {
        matches!(self.link, Link::Subscribed { .. })
    }

    fn owes_marks(&self) -> bool {
        matches!(self.spec.mode, AckMode::Marked(_)) && !self.unconfirmed.is_empty()
    }

    pub(super) fn end(self, result: Result<()>) {
        let error = result.clone().err().unwrap_or(Error::Ended);
        if let Some(started) = self.spec.started {
            let _ = started.send(Err(error.clone()));
        }
        for reply in self.pause_replies {
            let _ = reply.send(Err(error.clone()));
        }
        self.deliveries.lose_all_leases();
        self.spec.ended.send_replace(Some(result));
    }

    /// Ends because the server has ended the subscription, which is no error if it was about to end anyway.
    pub(super) fn ended_by_server(self, reason: EndReason) {
        let result = if self.wanted == Wanted::Stopped {
            Ok(())
        } else {
            let Membership { topic, group } = self.spec.membership.clone();
            Err(Error::SubscriptionEnded { topic, group, reason })
        };
        self.end(result);
    }

    /// Pauses or resumes. `reply` resolves when the server has confirmed it, or at once if there
    /// is nothing to tell the server over this connection.
    pub(super) fn set_paused(&mut self, is_paused: bool, reply: oneshot::Sender<Result<()>>) {
        if self.wanted != Wanted::Stopped {
            self.wanted = if is_paused { Wanted::Paused } else { Wanted::Active };
        }
        match self.link {
            Link::Subscribed { is_paused } if is_paused != self.wants_pause() => {
                self.pause_replies.push(reply);
            }
            _ => drop(reply.send(Ok(()))),
        }
    }

    fn wants_pause(&self) -> bool {
        self.wanted != Wanted::Active
    }

    /// Starts no more handlers, and is over when the running ones are done.
    pub(super) fn stop(&mut self) {
        self.wanted = Wanted::Stopped;
        // The server ends their leases with UNSUBSCRIBE.
        self.deliveries.drop_waiting();
        self.outbound.unchecked.clear();
    }

    /// Takes in a delivered event.
    ///
    /// Fails if the server delivers more than `max_in_flight` allows.
    pub(super) fn delivered(
        &mut self,
        json: Bytes,
        attempt: u32,
        time_left: Duration,
        now: Instant,
    ) -> Result<()> {
        let id = id_within(&json)?;
        if self.deliveries.redelivered(&id, attempt, time_left, now) {
            return Ok(());
        }
        if self.wanted == Wanted::Stopped || !self.is_subscribed() {
            return Ok(());
        }
        let max = self.spec.max_in_flight();
        if self.deliveries.is_over_limit(max + self.spec.concurrency) {
            let topic = &self.spec.membership.topic;
            let excess = format!("more than {max} events of {topic} are in flight");
            return Err(Error::NotUnderstood(excess));
        }
        let stage = if self.unconfirmed.contains(&id) {
            self.outbound.handled.push(id.clone());
            Stage::Settling { is_redelivered: false }
        } else if self.spec.mode == AckMode::Plain {
            Stage::Ready
        } else {
            self.outbound.unchecked.push_back(id.clone());
            Stage::Unchecked
        };
        let deadline = now + time_left;
        let delivery = Delivery { json, attempt, deadline, lease: Arc::default() };
        self.deliveries.insert(id, delivery, stage, time_left, now);
        Ok(())
    }

    /// Returns the next event for the handler, if one is ready and a handler is free.
    pub(super) fn start(&mut self) -> Option<(EventId, Delivery)> {
        if self.wanted == Wanted::Stopped {
            return None;
        }
        self.deliveries.start(self.spec.concurrency)
    }

    /// Takes in a handler's result.
    pub(super) fn handled(&mut self, id: EventId, handled: Handled) {
        let Some(has_lease) = self.deliveries.finish(&id) else { return };
        let is_subscribed = self.is_subscribed();
        let is_ours = has_lease && is_subscribed;
        match (handled, self.spec.mode) {
            (Handled::Done, mode) => {
                self.remember(id.clone());
                // The server stores a mark even if the lease is lost.
                if is_ours || (is_subscribed && mode != AckMode::Plain) {
                    self.outbound.handled.push(id);
                } else {
                    self.deliveries.remove(&id);
                }
            }
            _ if !is_ours => self.deliveries.remove(&id),
            (Handled::Produced(events), AckMode::Transformed(ttl)) => {
                let frame = frames::ack_and_publish(&self.spec.membership, &id, ttl, events);
                let (size, max) = (frame.len(), self.spec.max_frame_bytes);
                if size > max {
                    let reason = format!(
                        "its output makes a frame of {size} bytes, above the limit of {max}"
                    );
                    self.give_back(id, reason, AfterNack::BackOff);
                } else {
                    self.outbound.produced.push_back((id, frame));
                }
            }
            (Handled::Produced(_), _) => self.outbound.handled.push(id),
            (Handled::Failed { reason, next }, _) => self.give_back(id, reason, next),
        }
    }

    fn remember(&mut self, id: EventId) {
        // Marks are owed until they are confirmed, and there are at most as many as events were
        // delivered. In plain mode, an id may stay here forever if another member got the event.
        let max = 2 * (self.spec.max_in_flight() + self.spec.concurrency);
        if self.spec.mode == AckMode::Plain && self.unconfirmed.len() >= max {
            self.unconfirmed.clear();
        }
        self.unconfirmed.insert(id);
    }

    fn give_back(&mut self, id: EventId, reason: String, next: AfterNack) {
        self.deliveries.remove(&id);
        self.outbound.failed.push_back(Failure { id, reason, next });
    }

    /// The connection is lost, and with it every unanswered frame.
    pub(super) fn connection_lost(&mut self) {
        self.unanswered = 0;
        self.retry_at = None;
        self.unsubscribed();
    }

    /// This connection does not have the subscription, or not any longer.
    fn unsubscribed(&mut self) {
        self.link = Link::Unsubscribed;
        self.answer_pause_replies();
        self.deliveries.keep_running_only();
        self.outbound.clear();
    }

    fn answer_pause_replies(&mut self) {
        for reply in self.pause_replies.drain(..) {
            let _ = reply.send(Ok(()));
        }
    }

    /// Queues the lease extensions that are due.
    pub(super) fn wake(&mut self, now: Instant) {
        self.deliveries.extend_due(now, &mut self.outbound.extensions);
    }

    pub(super) fn next_wake(&self, now: Instant) -> Option<Instant> {
        earlier(self.deliveries.next_extension(), self.retry_at.filter(|at| *at > now))
    }
}

#[cfg(test)]
mod tests;
