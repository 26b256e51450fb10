//! What callers asked for and wait for: publishes above all. Each is sent, and sent again as it is
//! after a lost connection, until it is answered or its time is over.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use prombus_proto::frame::Outcome;
use prombus_proto::{ErrorCode, RandomSource, Topic};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio_tungstenite::tungstenite::Utf8Bytes;

use super::pacing::Pacing;
use crate::error::Refusal;
use crate::transport::{full_jitter, wait_after};
use crate::{Error, Result};

/// Something that somebody waits for.
#[derive(Debug)]
pub(crate) struct Request {
    frame: Utf8Bytes,
    /// Where it publishes to, if it does.
    topic: Option<Topic>,
    /// Nobody any more when it took too long.
    reply: Option<oneshot::Sender<Result<Outcome>>>,
    deadline: Option<Instant>,
    /// The order in which requests came.
    number: u64,
    failed: u32,
    not_before: Option<Instant>,
    /// Its place in the window.
    _permit: OwnedSemaphorePermit,
}

/// How trying again goes.
#[derive(Clone, Debug)]
pub(crate) struct Retrying {
    /// The longest wait after the first failure.
    pub(crate) first: Duration,
    /// The longest wait at all.
    pub(crate) longest: Duration,
    /// Whether refusals for the rate are waited out.
    pub(crate) waits_for_rate: bool,
}

impl Retrying {
    /// How long to wait after so many failures before.
    pub(super) fn wait(&self, failed: u32, random: &dyn RandomSource) -> Duration {
        full_jitter(wait_after(self.first, self.longest, failed), random)
    }
}

#[derive(Debug)]
pub(super) struct Requests {
    retrying: Retrying,
    /// In the order of their numbers.
    to_send: VecDeque<Request>,
    /// To be sent at a time of their own.
    later: Vec<Request>,
    in_flight: usize,
    pacing: Pacing,
    next_number: u64,
    /// Nothing runs out of time before this.
    next_deadline: Option<Instant>,
}

impl Request {
    pub(crate) fn new(
        frame: Utf8Bytes,
        topic: Option<Topic>,
        reply: oneshot::Sender<Result<Outcome>>,
        deadline: Option<Instant>,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        Self {
            frame,
            topic,
            reply: Some(reply),
            deadline,
            number: 0,
            failed: 0,
            not_before: None,
            _permit: permit,
        }
    }

    pub(super) fn frame(&self) -> Utf8Bytes {
        self.frame.clone()
    }

    fn finish(mut self, result: Result<Outcome>) {
        if let Some(reply) = self.reply.take() {
            // Who does not wait any more is not told.
            let _ = reply.send(result);
        }
    }

    fn expire(&mut self, now: Instant) {
        if self.deadline.is_some_and(|deadline| deadline <= now)
            && let Some(reply) = self.reply.take()
        {
            let _ = reply.send(Err(Error::TimedOut));
        }
    }

    /// When it runs out of time, if somebody still waits for it.
    fn runs_out(&self) -> Option<Instant> {
        self.deadline.filter(|_| self.reply.is_some())
    }
}

impl Requests {
    pub(super) fn new(retrying: Retrying) -> Self {
        Self {
            retrying,
            to_send: VecDeque::new(),
            later: Vec::new(),
            in_flight: 0,
            pacing: Pacing::default(),
            next_number: 0,
            next_deadline: None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.to_send.is_empty() && self.later.is_empty() && self.in_flight == 0
    }

    pub(super) fn admit(&mut self, mut request: Request) {
        request.number = self.next_number;
        self.next_number += 1;
        self.next_deadline = earlier(self.next_deadline, request.deadline);
        self.to_send.push_back(request);
    }

    /// The next one to be sent, to be handed back when it is answered or lost.
    pub(super) fn next(&mut self, now: Instant) -> Option<Request> {
        let request = if self.pacing.is_free() {
            self.to_send.pop_front()?
        } else {
            let may_go = |request: &Request| {
                request.topic.as_ref().is_none_or(|topic| self.pacing.may_send(topic, now))
            };
            let index = self.to_send.iter().position(may_go)?;
            let request = self.to_send.remove(index)?;
            if let Some(topic) = &request.topic {
                self.pacing.sent(topic);
            }
            request
        };
        self.in_flight += 1;
        Some(request)
    }

    pub(super) fn done(&mut self, request: Request, outcome: Outcome) {
        self.in_flight -= 1;
        self.settle_pace(&request);
        request.finish(Ok(outcome));
    }

    /// Tries again what may get better, and says the rest.
    pub(super) fn refused(
        &mut self,
        mut request: Request,
        refusal: Refusal,
        now: Instant,
        random: &dyn RandomSource,
    ) {
        self.in_flight -= 1;
        match (refusal.code, refusal.retry_after) {
            (ErrorCode::RateLimited, Some(wait)) if self.retrying.waits_for_rate => {
                if let Some(topic) = &request.topic {
                    let is_connection = refusal.msg.starts_with("conn");
                    self.pacing.refused(topic, is_connection, now + wait);
                    self.put_back(request);
                } else {
                    request.not_before = Some(now + wait);
                    self.later.push(request);
                }
            }
            (ErrorCode::StorageUnavailable | ErrorCode::ShuttingDown, _) => {
                self.settle_pace(&request);
                let wait = self.retrying.wait(request.failed, random);
                request.failed += 1;
                request.not_before = Some(now + refusal.retry_after.unwrap_or(wait));
                self.later.push(request);
            }
            _ => {
                self.settle_pace(&request);
                request.finish(Err(refusal.into()));
            }
        }
    }

    /// The connection was lost before these were answered: they go first over the next.
    pub(super) fn lost(&mut self, requests: Vec<Request>) {
        self.in_flight -= requests.len();
        self.pacing.connection_lost();
        for request in requests.into_iter().rev() {
            self.put_back(request);
        }
    }

    /// What time brings: some may be sent again, others wait no longer. `in_flight` are those that
    /// [`Requests::next`] gave.
    pub(super) fn wake<'a>(
        &mut self,
        now: Instant,
        in_flight: impl Iterator<Item = &'a mut Request>,
    ) {
        if self.next_deadline.is_some_and(|deadline| deadline <= now) {
            let mut next = None;
            let mut look_at = |request: &mut Request| {
                request.expire(now);
                next = earlier(next, request.runs_out());
            };
            in_flight.for_each(&mut look_at);
            self.to_send.iter_mut().chain(&mut self.later).for_each(look_at);
            self.next_deadline = next;
            self.to_send.retain(|request| request.reply.is_some());
            self.later.retain(|request| request.reply.is_some());
        }
        let is_due = |request: &mut Request| request.not_before.is_none_or(|at| at <= now);
        let due: Vec<_> = self.later.extract_if(.., is_due).collect();
        for request in due {
            self.put_back(request);
        }
    }

    pub(super) fn next_wake(&self, now: Instant) -> Option<Instant> {
        let due = self.later.iter().filter_map(|request| request.not_before).min();
        let held = if self.to_send.is_empty() { None } else { self.pacing.next_wake(now) };
        earlier(earlier(due, held), self.next_deadline)
    }

    /// Nothing is sent any more.
    pub(super) fn end(&mut self, error: &Error) {
        for request in self.to_send.drain(..).chain(self.later.drain(..)) {
            request.finish(Err(error.clone()));
        }
    }

    /// At the place that its number says. Whom nobody waits for is left out.
    fn put_back(&mut self, mut request: Request) {
        if request.reply.is_none() {
            return;
        }
        request.not_before = None;
        let index = self.to_send.partition_point(|other| other.number < request.number);
        self.to_send.insert(index, request);
    }

    fn settle_pace(&mut self, request: &Request) {
        if let Some(topic) = &request.topic {
            self.pacing.stored(topic);
        }
    }
}

pub(super) fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}
