//! Requests that callers wait for, mostly publishes. Each is sent, and sent again unchanged after
//! a lost connection, until it is answered or its deadline has passed.

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

#[derive(Debug)]
pub(crate) struct Request {
    frame: Utf8Bytes,
    /// The topic of a publish.
    topic: Option<Topic>,
    /// `None` after the deadline.
    reply: Option<oneshot::Sender<Result<Outcome>>>,
    deadline: Option<Instant>,
    /// Its position in the order of requests.
    number: u64,
    failed: u32,
    not_before: Option<Instant>,
    /// Frees a slot of the window when dropped.
    _permit: OwnedSemaphorePermit,
}

#[derive(Clone, Debug)]
pub(crate) struct RetryPolicy {
    /// Upper bound of the wait after the first failure.
    pub(crate) first: Duration,
    /// Upper bound of any wait.
    pub(crate) longest: Duration,
    /// Whether a publish refused as `rate_limited` is sent again.
    pub(crate) waits_for_rate: bool,
}

impl RetryPolicy {
    /// Returns a random wait, with `failed` failures before this one.
    pub(super) fn wait(&self, failed: u32, random: &dyn RandomSource) -> Duration {
        full_jitter(wait_after(self.first, self.longest, failed), random)
    }
}

#[derive(Debug)]
pub(super) struct Requests {
    policy: RetryPolicy,
    /// In order of `number`.
    to_send: VecDeque<Request>,
    /// Refused; sent again at their `not_before`.
    delayed: Vec<Request>,
    in_flight: usize,
    pacing: Pacing,
    next_number: u64,
    /// No request expires before this.
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
            // The receiver may have been dropped.
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

    /// The deadline, unless the request has expired.
    fn pending_deadline(&self) -> Option<Instant> {
        self.deadline.filter(|_| self.reply.is_some())
    }
}

impl Requests {
    pub(super) fn new(policy: RetryPolicy) -> Self {
        Self {
            policy,
            to_send: VecDeque::new(),
            delayed: Vec::new(),
            in_flight: 0,
            pacing: Pacing::default(),
            next_number: 0,
            next_deadline: None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.to_send.is_empty() && self.delayed.is_empty() && self.in_flight == 0
    }

    pub(super) fn admit(&mut self, mut request: Request) {
        request.number = self.next_number;
        self.next_number += 1;
        self.next_deadline = earlier(self.next_deadline, request.deadline);
        self.to_send.push_back(request);
    }

    /// Takes the next request to send. It is handed back when it is answered or lost.
    pub(super) fn next(&mut self, now: Instant) -> Option<Request> {
        let request = if self.pacing.is_unlimited() {
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
        self.answered(&request);
        request.finish(Ok(outcome));
    }

    /// Retries after refusals that may pass, and reports the others.
    pub(super) fn refused(
        &mut self,
        mut request: Request,
        refusal: Refusal,
        now: Instant,
        random: &dyn RandomSource,
    ) {
        self.in_flight -= 1;
        match (refusal.code, refusal.retry_after) {
            (ErrorCode::RateLimited, Some(wait)) if self.policy.waits_for_rate => {
                if let Some(topic) = &request.topic {
                    // The message starts with the limit's scope: `conn`, `principal` or `topic`.
                    let is_connection = !refusal.msg.starts_with("topic");
                    self.pacing.refused(topic, is_connection, now + wait);
                    self.put_back(request);
                } else {
                    request.not_before = Some(now + wait);
                    self.delayed.push(request);
                }
            }
            (ErrorCode::StorageUnavailable | ErrorCode::ShuttingDown, _) => {
                self.answered(&request);
                let wait = self.policy.wait(request.failed, random);
                request.failed += 1;
                request.not_before = Some(now + refusal.retry_after.unwrap_or(wait));
                self.delayed.push(request);
            }
            _ => {
                self.answered(&request);
                request.finish(Err(refusal.into()));
            }
        }
    }

    /// Queues the unanswered requests of a lost connection to be sent first over the next one.
    pub(super) fn connection_lost(&mut self, requests: Vec<Request>) {
        self.in_flight -= requests.len();
        self.pacing.connection_lost();
        for request in requests.into_iter().rev() {
            self.put_back(request);
        }
    }

    /// Expires requests past their deadline and queues delayed ones that are due. `in_flight` are
    /// the requests that [`Requests::next`] has returned.
    pub(super) fn wake<'a>(
        &mut self,
        now: Instant,
        in_flight: impl Iterator<Item = &'a mut Request>,
    ) {
        if self.next_deadline.is_some_and(|deadline| deadline <= now) {
            let mut next = None;
            let mut expire = |request: &mut Request| {
                request.expire(now);
                next = earlier(next, request.pending_deadline());
            };
            in_flight.for_each(&mut expire);
            self.to_send.iter_mut().chain(&mut self.delayed).for_each(expire);
            self.next_deadline = next;
            self.to_send.retain(|request| request.reply.is_some());
            self.delayed.retain(|request| request.reply.is_some());
        }
        let is_due = |request: &mut Request| request.not_before.is_none_or(|at| at <= now);
        let due: Vec<_> = self.delayed.extract_if(.., is_due).collect();
        for request in due {
            self.put_back(request);
        }
    }

    pub(super) fn next_wake(&self, now: Instant) -> Option<Instant> {
        let due = self.delayed.iter().filter_map(|request| request.not_before).min();
        let throttled = if self.to_send.is_empty() { None } else { self.pacing.next_wake(now) };
        earlier(earlier(due, throttled), self.next_deadline)
    }

    pub(super) fn end(&mut self, error: &Error) {
        for request in self.to_send.drain(..).chain(self.delayed.drain(..)) {
            request.finish(Err(error.clone()));
        }
    }

    /// Queues it in order of `number`. Expired requests are dropped.
    fn put_back(&mut self, mut request: Request) {
        if request.reply.is_none() {
            return;
        }
        request.not_before = None;
        let index = self.to_send.partition_point(|other| other.number < request.number);
        self.to_send.insert(index, request);
    }

    fn answered(&mut self, request: &Request) {
        if let Some(topic) = &request.topic {
            self.pacing.stored(topic);
        }
    }
}

pub(super) fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}
