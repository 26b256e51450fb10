//! The client's protocol state machine: what to send, who waits for which answer, and what to send
//! again after a lost connection. It does no I/O and takes the time as an argument; `driver` runs
//! it.
//!
//! - `requests`: requests that callers wait for, mostly publishes
//! - `pacing`: throttling after `rate_limited`
//! - `subscriber`: one subscription and its events
//! - `frames`: the text of frames
//!
//! The server answers frames in order, so an answer belongs to the frame at the front of `sent`.

pub(crate) mod frames;
#[cfg(test)]
mod harness;
mod pacing;
pub(crate) mod requests;
pub(crate) mod subscriber;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use prombus_proto::frame::{EndReason, Membership, Outcome, ServerFrame, Token};
use prombus_proto::{ErrorCode, EventId, RandomSource};
use tokio::sync::oneshot;
use tokio_tungstenite::tungstenite::Utf8Bytes;

use crate::consuming::handler::{Handled, Handler};
use crate::consuming::received::Delivery;
use crate::error::Refusal;
use crate::{Error, Result};
use requests::{Request, Requests, RetryPolicy, earlier};
use subscriber::{PendingOp, SubscribeRequest, Subscriber};

#[derive(Clone, Debug)]
pub(crate) struct SessionSettings {
    pub(crate) retry: RetryPolicy,
    /// The largest frame that may be sent.
    pub(crate) max_frame_bytes: usize,
}

/// What the client's handles ask for, besides requests.
pub(crate) enum Command {
    Subscribe(Box<SubscribeRequest>),
    SetPaused {
        membership: Membership,
        is_paused: bool,
        reply: oneshot::Sender<Result<()>>,
    },
    Stop(Membership),
    Authenticate {
        token: Token,
        reply: oneshot::Sender<Result<()>>,
    },
    /// Ends the client once running handlers and requests are done.
    Close,
}

/// A handler to run on an event.
pub(crate) struct HandlerCall {
    pub(crate) membership: Membership,
    pub(crate) id: EventId,
    pub(crate) delivery: Delivery,
    pub(crate) handler: Handler,
}

/// The result of a [`HandlerCall`].
pub(crate) struct Completion {
    pub(crate) membership: Membership,
    pub(crate) id: EventId,
    pub(crate) handled: Handled,
}

/// A frame that was sent and is not answered yet.
enum Sent {
    /// The AUTH that opens a connection.
    FirstAuth,
    /// [`Command::Authenticate`].
    Reauth(Token, oneshot::Sender<Result<()>>),
    Request(Request),
    Subscriber(Membership, PendingOp),
    /// For a subscription that the server has ended: whatever the answer is, it changes nothing.
    Void,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Disconnected,
    Authenticating,
    Ready,
}

pub(crate) struct Session {
    settings: SessionSettings,
    random: Arc<dyn RandomSource>,
    token: Option<Token>,
    /// Tokens to authenticate with over this connection.
    new_tokens: VecDeque<(Token, oneshot::Sender<Result<()>>)>,
    link: Link,
    sent: VecDeque<Sent>,
    requests: Requests,
    subscribers: HashMap<Membership, Subscriber>,
    /// Set while no subscriber has anything to send, so that publishing need not ask each of them.
    subscribers_are_idle: bool,
    is_closing: bool,
}

impl Session {
    pub(crate) fn new(
        settings: SessionSettings,
        token: Option<Token>,
        random: Arc<dyn RandomSource>,
    ) -> Self {
        Self {
            requests: Requests::new(settings.retry.clone()),
            settings,
            random,
            token,
            new_tokens: VecDeque::new(),
            link: Link::Disconnected,
            sent: VecDeque::new(),
            subscribers: HashMap::new(),
            subscribers_are_idle: true,
            is_closing: false,
        }
    }

    pub(crate) fn request(&mut self, request: Request) {
        self.requests.admit(request);
    }

    pub(crate) fn command(&mut self, command: Command) {
        self.subscribers_are_idle = false;
        match command {
            Command::Subscribe(request) => self.subscribe(*request),
            Command::SetPaused { membership, is_paused, reply } => {
                match self.subscribers.get_mut(&membership) {
                    Some(subscriber) => subscriber.set_paused(is_paused, reply),
                    None => drop(reply.send(Err(Error::Ended))),
                }
            }
            Command::Stop(membership) => {
                if let Some(subscriber) = self.subscribers.get_mut(&membership) {
                    subscriber.stop();
                }
            }
            Command::Authenticate { token, reply } => {
                if self.link == Link::Ready {
                    self.new_tokens.push_back((token, reply));
                } else {
                    self.token = Some(token);
                    let _ = reply.send(Ok(()));
                }
            }
            Command::Close => {
                self.is_closing = true;
                self.subscribers.values_mut().for_each(Subscriber::stop);
            }
        }
        self.remove_stopped();
    }

    fn subscribe(&mut self, request: SubscribeRequest) {
        let Membership { topic, group } = &request.membership;
        if self.subscribers.contains_key(&request.membership) {
            let msg = format!("this client already subscribes to {topic} as {group}");
            let _ = request.started.send(Err(Error::refused(ErrorCode::AlreadySubscribed, msg)));
            return;
        }
        let membership = request.membership.clone();
        let mut subscriber = Subscriber::new(request, self.settings.max_frame_bytes);
        if self.is_closing {
            subscriber.stop();
        }
        self.subscribers.insert(membership, subscriber);
    }

    /// Returns `true` if the client is closing and everything asked for before is done.
    pub(crate) fn is_done(&self) -> bool {
        self.is_closing && self.requests.is_empty() && self.subscribers.is_empty()
    }

    /// Returns `true` if the connection is open and authenticated.
    pub(crate) fn is_ready(&self) -> bool {
        self.link == Link::Ready
    }

    pub(crate) const fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// A connection was opened. Returns the frame to send first, if any.
    pub(crate) fn connected(&mut self) -> Option<Utf8Bytes> {
        self.subscribers_are_idle = false;
        match &self.token {
            Some(token) => {
                self.link = Link::Authenticating;
                self.sent.push_back(Sent::FirstAuth);
                Some(frames::auth(token))
            }
            None => {
                self.link = Link::Ready;
                None
            }
        }
    }

    pub(crate) fn disconnected(&mut self) {
        self.link = Link::Disconnected;
        let mut requests = Vec::new();
        for sent in self.sent.drain(..) {
            match sent {
                Sent::Request(request) => requests.push(request),
                // The next connection opens with the newest token.
                Sent::Reauth(token, reply) => {
                    self.token = Some(token);
                    let _ = reply.send(Ok(()));
                }
                Sent::FirstAuth | Sent::Subscriber(..) | Sent::Void => {}
            }
        }
        self.requests.connection_lost(requests);
        while let Some((token, reply)) = self.new_tokens.pop_front() {
            self.token = Some(token);
            let _ = reply.send(Ok(()));
        }
        self.subscribers.values_mut().for_each(Subscriber::connection_lost);
        self.remove_stopped();
    }

    /// Returns the next frame to send.
    pub(crate) fn next_frame(&mut self, now: Instant) -> Option<Utf8Bytes> {
        if self.link != Link::Ready {
            return None;
        }
        if let Some((token, reply)) = self.new_tokens.pop_front() {
            let frame = frames::auth(&token);
            self.sent.push_back(Sent::Reauth(token, reply));
            return Some(frame);
        }
        if !self.subscribers_are_idle {
            for (membership, subscriber) in &mut self.subscribers {
                if let Some((frame, op)) = subscriber.next_frame(now) {
                    self.sent.push_back(Sent::Subscriber(membership.clone(), op));
                    return Some(frame);
                }
            }
            self.subscribers_are_idle = true;
        }
        let request = self.requests.next(now)?;
        let frame = request.frame();
        self.sent.push_back(Sent::Request(request));
        Some(frame)
    }

    /// Takes in a frame from the server. `Error::NotUnderstood` ends the connection, any other
    /// error ends the client.
    pub(crate) fn received(&mut self, text: &Bytes, now: Instant) -> Result<()> {
        let frame = ServerFrame::parse(text)
            .map_err(|error| Error::NotUnderstood(format!("not a valid frame: {error}")))?;
        match frame {
            ServerFrame::Ok { outcome, .. } => self.answered(outcome),
            ServerFrame::Err { code, msg, retry_after_ms, .. } => {
                self.refused(Refusal::from_wire(code, msg, retry_after_ms), now)
            }
            ServerFrame::Event { topic, group, event, attempt, ack_deadline_ms } => {
                let time_left = Duration::from_millis(ack_deadline_ms);
                self.subscribers_are_idle = false;
                match self.subscribers.get_mut(&Membership { topic, group }) {
                    Some(subscriber) => subscriber.delivered(event, attempt, time_left, now),
                    None => Ok(()),
                }
            }
            ServerFrame::Ended { topic, group, reason } => {
                self.ended(&Membership { topic, group }, reason);
                Ok(())
            }
        }
    }

    /// The server has ended a subscription.
    fn ended(&mut self, membership: &Membership, reason: EndReason) {
        let Some(subscriber) = self.subscribers.remove(membership) else { return };
        for sent in &mut self.sent {
            // The answers must not reach a later subscription of the same name.
            if matches!(sent, Sent::Subscriber(of, _) if of == membership) {
                *sent = Sent::Void;
            }
        }
        subscriber.ended_by_server(reason);
    }

    fn answered(&mut self, outcome: Outcome) -> Result<()> {
        match self.sent.pop_front() {
            Some(Sent::Request(request)) => self.requests.done(request, outcome),
            Some(Sent::FirstAuth) => {
                self.link = Link::Ready;
                self.subscribers_are_idle = false;
            }
            Some(Sent::Reauth(token, reply)) => {
                self.token = Some(token);
                let _ = reply.send(Ok(()));
            }
            Some(Sent::Subscriber(membership, op)) => {
                self.subscribers_are_idle = false;
                if let Some(subscriber) = self.subscribers.get_mut(&membership) {
                    subscriber.answered(op, outcome)?;
                }
                self.remove_stopped();
            }
            Some(Sent::Void) => {}
            None => return Err(Error::NotUnderstood("an answer without a request".to_owned())),
        }
        Ok(())
    }

    fn refused(&mut self, refusal: Refusal, now: Instant) -> Result<()> {
        let random = &*self.random;
        match self.sent.pop_front() {
            Some(Sent::Request(request)) => self.requests.refused(request, refusal, now, random),
            Some(Sent::FirstAuth) => return Err(refusal.into()),
            Some(Sent::Reauth(_, reply)) => drop(reply.send(Err(refusal.into()))),
            Some(Sent::Subscriber(membership, op)) => {
                self.subscribers_are_idle = false;
                let policy = &self.settings.retry;
                if let Some(subscriber) = self.subscribers.get_mut(&membership)
                    && let Err(error) = subscriber.refused(op, refusal, now, policy, random)
                    && let Some(subscriber) = self.subscribers.remove(&membership)
                {
                    subscriber.end(Err(error));
                }
                self.remove_stopped();
            }
            Some(Sent::Void) => {}
            None => {
                let msg = format!("a refusal without a request: {refusal}");
                return Err(Error::NotUnderstood(msg));
            }
        }
        Ok(())
    }

    /// Returns the next handler to run.
    pub(crate) fn next_handler_call(&mut self) -> Option<HandlerCall> {
        self.subscribers.iter_mut().find_map(|(membership, subscriber)| {
            let (id, delivery) = subscriber.start()?;
            let handler = Arc::clone(&subscriber.spec.handler);
            Some(HandlerCall { membership: membership.clone(), id, delivery, handler })
        })
    }

    pub(crate) fn completed(&mut self, Completion { membership, id, handled }: Completion) {
        if let Some(subscriber) = self.subscribers.get_mut(&membership) {
            self.subscribers_are_idle = false;
            subscriber.handled(id, handled);
        }
        self.remove_stopped();
    }

    /// Does what is due at `now`: expires requests, retries, extends leases.
    pub(crate) fn wake(&mut self, now: Instant) {
        self.subscribers_are_idle = false;
        let in_flight = self.sent.iter_mut().filter_map(|sent| match sent {
            Sent::Request(request) => Some(request),
            _ => None,
        });
        self.requests.wake(now, in_flight);
        for subscriber in self.subscribers.values_mut() {
            subscriber.wake(now);
        }
    }

    /// Returns when [`Session::wake`] has to be called next.
    pub(crate) fn next_wake(&self, now: Instant) -> Option<Instant> {
        let wakes = self.subscribers.values().filter_map(|subscriber| subscriber.next_wake(now));
        earlier(self.requests.next_wake(now), wakes.min())
    }

    /// Fails everything that is pending with `error`.
    pub(crate) fn end(&mut self, error: &Error) {
        self.disconnected();
        self.requests.end(error);
        for (_, subscriber) in self.subscribers.drain() {
            subscriber.end(Err(error.clone()));
        }
    }

    fn remove_stopped(&mut self) {
        let over = self.subscribers.extract_if(|_, subscriber| subscriber.is_over());
        for (_, subscriber) in over {
            subscriber.end(Ok(()));
        }
    }
}

#[cfg(test)]
mod tests;
