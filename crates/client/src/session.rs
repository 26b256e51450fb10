//! What one client has to say to its server, what it is owed, and what is to be said again after a
//! lost connection. A state machine: no I/O, time is handed in.
//!
//! | idea | file |
//! |---|---|
//! | requests that somebody waits for, publishes above all | `requests` |
//! | how fast to publish where there is a limit | `pacing` |
//! | subscriptions and their events | `follower` |
//! | the text of frames | `frames` |
//! | the task that moves it all | `driver` |
//!
//! The server answers in the order of frames, so the frame at the head of `sent` is the one that an
//! answer is to.

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
use prombus_proto::frame::{Membership, Outcome, ServerFrame, Token};
use prombus_proto::{ErrorCode, EventId, RandomSource};
use tokio::sync::oneshot;
use tokio_tungstenite::tungstenite::Utf8Bytes;

use crate::consuming::handler::{Handled, Handler};
use crate::consuming::received::Delivery;
use crate::error::Refusal;
use crate::{Error, Result};
use requests::{Request, Requests, Retrying, earlier};
use subscriber::{Asked, Follower, Following};

/// What a client can be told.
#[derive(Clone, Debug)]
pub(crate) struct SessionSettings {
    pub(crate) retrying: Retrying,
    /// No frame is larger.
    pub(crate) max_frame_bytes: usize,
}

/// What a handle of the client asks for, beside requests.
pub(crate) enum Command {
    Subscribe(Box<Following>),
    SetPaused {
        which: Membership,
        is_paused: bool,
        reply: oneshot::Sender<Result<()>>,
    },
    Stop(Membership),
    Authenticate {
        token: Token,
        reply: oneshot::Sender<Result<()>>,
    },
    /// Finishes everything, and ends.
    Close,
}

/// What a handler made of an event.
pub(crate) struct Settled {
    pub(crate) which: Membership,
    pub(crate) id: EventId,
    pub(crate) handled: Handled,
}

/// An event to be handled.
pub(crate) struct Start {
    pub(crate) which: Membership,
    pub(crate) id: EventId,
    pub(crate) delivery: Delivery,
    pub(crate) handler: Handler,
}

/// A frame that was sent and not answered yet.
enum Sent {
    /// With the new token, and who waits for it, where it is not the first.
    Auth(Option<(Token, oneshot::Sender<Result<()>>)>),
    Request(Request),
    Following(Membership, Asked),
}

/// How far the connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    None,
    Authenticating,
    Ready,
}

pub(crate) struct Session {
    settings: SessionSettings,
    random: Arc<dyn RandomSource>,
    token: Option<Token>,
    /// A new token to be told, and who waits for that.
    new_token: VecDeque<(Token, oneshot::Sender<Result<()>>)>,
    link: Link,
    sent: VecDeque<Sent>,
    requests: Requests,
    followers: HashMap<Membership, Follower>,
    /// Whether no follower has anything to send until something happens.
    followers_are_quiet: bool,
    is_closing: bool,
}

impl Session {
    pub(crate) fn new(
        settings: SessionSettings,
        token: Option<Token>,
        random: Arc<dyn RandomSource>,
    ) -> Self {
        Self {
            requests: Requests::new(settings.retrying.clone()),
            settings,
            random,
            token,
            new_token: VecDeque::new(),
            link: Link::None,
            sent: VecDeque::new(),
            followers: HashMap::new(),
            followers_are_quiet: true,
            is_closing: false,
        }
    }

    pub(crate) fn request(&mut self, request: Request) {
        self.requests.admit(request);
    }

    pub(crate) fn command(&mut self, command: Command) {
        self.followers_are_quiet = false;
        match command {
            Command::Subscribe(following) => self.follow(*following),
            Command::SetPaused { which, is_paused, reply } => {
                match self.followers.get_mut(&which) {
                    Some(follower) => follower.set_paused(is_paused, reply),
                    None => drop(reply.send(Err(Error::Ended))),
                }
            }
            Command::Stop(which) => {
                if let Some(follower) = self.followers.get_mut(&which) {
                    follower.stop();
                }
            }
            Command::Authenticate { token, reply } => {
                if self.link == Link::Ready {
                    self.new_token.push_back((token, reply));
                } else {
                    self.token = Some(token);
                    let _ = reply.send(Ok(()));
                }
            }
            Command::Close => {
                self.is_closing = true;
                self.followers.values_mut().for_each(Follower::stop);
            }
        }
        self.let_go();
    }

    fn follow(&mut self, following: Following) {
        let Membership { topic, group } = &following.which;
        if self.followers.contains_key(&following.which) {
            let msg = format!("this client subscribes to {group} on {topic} already");
            let _ = following.started.send(Err(Error::refused(ErrorCode::AlreadySubscribed, msg)));
            return;
        }
        let which = following.which.clone();
        let mut follower = Follower::new(following, self.settings.max_frame_bytes);
        if self.is_closing {
            follower.stop();
        }
        self.followers.insert(which, follower);
    }

    /// Whether all is done that was asked for before the end.
    pub(crate) fn is_done(&self) -> bool {
        self.is_closing && self.requests.is_empty() && self.followers.is_empty()
    }

    /// Whether the server takes what we send.
    pub(crate) fn is_ready(&self) -> bool {
        self.link == Link::Ready
    }

    pub(crate) const fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// There is a connection. Answers the frame that it begins with, if any.
    pub(crate) fn connected(&mut self) -> Option<Utf8Bytes> {
        self.followers_are_quiet = false;
        match &self.token {
            Some(token) => {
                self.link = Link::Authenticating;
                self.sent.push_back(Sent::Auth(None));
                Some(frames::auth(token))
            }
            None => {
                self.link = Link::Ready;
                None
            }
        }
    }

    /// The connection is gone.
    pub(crate) fn disconnected(&mut self) {
        self.link = Link::None;
        let mut requests = Vec::new();
        for sent in self.sent.drain(..) {
            match sent {
                Sent::Request(request) => requests.push(request),
                // The next connection begins with the new token.
                Sent::Auth(Some((token, reply))) => {
                    self.token = Some(token);
                    let _ = reply.send(Ok(()));
                }
                Sent::Auth(None) | Sent::Following(..) => {}
            }
        }
        self.requests.lost(requests);
        while let Some((token, reply)) = self.new_token.pop_front() {
            self.token = Some(token);
            let _ = reply.send(Ok(()));
        }
        self.followers.values_mut().for_each(Follower::lost);
        self.let_go();
    }

    /// The next frame to be sent.
    pub(crate) fn next_frame(&mut self, now: Instant) -> Option<Utf8Bytes> {
        if self.link != Link::Ready {
            return None;
        }
        if let Some((token, reply)) = self.new_token.pop_front() {
            let frame = frames::auth(&token);
            self.sent.push_back(Sent::Auth(Some((token, reply))));
            return Some(frame);
        }
        if !self.followers_are_quiet {
            for (which, follower) in &mut self.followers {
                if let Some((frame, asked)) = follower.next_frame(now) {
                    self.sent.push_back(Sent::Following(which.clone(), asked));
                    return Some(frame);
                }
            }
            self.followers_are_quiet = true;
        }
        let request = self.requests.next(now)?;
        let frame = request.frame();
        self.sent.push_back(Sent::Request(request));
        Some(frame)
    }

    /// A frame from the server. Fails with what ends the client, or with `NotUnderstood`, which
    /// ends the connection.
    pub(crate) fn received(&mut self, text: &Bytes, now: Instant) -> Result<()> {
        let frame = ServerFrame::parse(text)
            .map_err(|error| Error::NotUnderstood(format!("what is no frame: {error}")))?;
        match frame {
            ServerFrame::Ok { outcome, .. } => self.answered(outcome),
            ServerFrame::Err { code, msg, retry_after_ms, .. } => {
                self.refused(Refusal::from_wire(code, msg, retry_after_ms), now)
            }
            ServerFrame::Event { topic, group, event, attempt, ack_deadline_ms } => {
                let left = Duration::from_millis(ack_deadline_ms);
                self.followers_are_quiet = false;
                match self.followers.get_mut(&Membership { topic, group }) {
                    Some(follower) => follower.came(event, attempt, left, now),
                    None => Ok(()),
                }
            }
        }
    }

    fn answered(&mut self, outcome: Outcome) -> Result<()> {
        match self.sent.pop_front() {
            Some(Sent::Request(request)) => self.requests.done(request, outcome),
            Some(Sent::Auth(reply)) => {
                self.link = Link::Ready;
                self.followers_are_quiet = false;
                if let Some((token, reply)) = reply {
                    self.token = Some(token);
                    let _ = reply.send(Ok(()));
                }
            }
            Some(Sent::Following(which, asked)) => {
                self.followers_are_quiet = false;
                if let Some(follower) = self.followers.get_mut(&which) {
                    follower.answered(asked, outcome)?;
                }
                self.let_go();
            }
            None => return Err(Error::NotUnderstood("an answer to nothing".to_owned())),
        }
        Ok(())
    }

    fn refused(&mut self, refusal: Refusal, now: Instant) -> Result<()> {
        let random = &*self.random;
        match self.sent.pop_front() {
            Some(Sent::Request(request)) => self.requests.refused(request, refusal, now, random),
            Some(Sent::Auth(Some((_, reply)))) => drop(reply.send(Err(refusal.into()))),
            Some(Sent::Auth(None)) => return Err(refusal.into()),
            Some(Sent::Following(which, asked)) => {
                self.followers_are_quiet = false;
                let retrying = &self.settings.retrying;
                if let Some(follower) = self.followers.get_mut(&which)
                    && let Err(error) = follower.refused(asked, refusal, now, retrying, random)
                    && let Some(follower) = self.followers.remove(&which)
                {
                    follower.end(Err(error));
                }
                self.let_go();
            }
            None => return Err(Error::NotUnderstood(format!("a refusal of nothing: {refusal}"))),
        }
        Ok(())
    }

    /// The next event for a handler.
    pub(crate) fn start(&mut self) -> Option<Start> {
        self.followers.iter_mut().find_map(|(which, follower)| {
            let (id, delivery) = follower.start()?;
            let handler = Arc::clone(&follower.made.handler);
            Some(Start { which: which.clone(), id, delivery, handler })
        })
    }

    pub(crate) fn settled(&mut self, Settled { which, id, handled }: Settled) {
        if let Some(follower) = self.followers.get_mut(&which) {
            self.followers_are_quiet = false;
            follower.handled(id, handled);
        }
        self.let_go();
    }

    /// What time brings.
    pub(crate) fn wake(&mut self, now: Instant) {
        self.followers_are_quiet = false;
        let in_flight = self.sent.iter_mut().filter_map(|sent| match sent {
            Sent::Request(request) => Some(request),
            _ => None,
        });
        self.requests.wake(now, in_flight);
        for follower in self.followers.values_mut() {
            follower.wake(now);
        }
    }

    /// When to be woken.
    pub(crate) fn next_wake(&self, now: Instant) -> Option<Instant> {
        let followers = self.followers.values().filter_map(|follower| follower.next_wake(now));
        earlier(self.requests.next_wake(now), followers.min())
    }

    /// Nothing goes on any more.
    pub(crate) fn end(&mut self, error: &Error) {
        self.disconnected();
        self.requests.end(error);
        for (_, follower) in self.followers.drain() {
            follower.end(Err(error.clone()));
        }
    }

    /// Lets those go who stopped.
    fn let_go(&mut self) {
        let over = self.followers.extract_if(|_, follower| follower.is_over());
        for (_, follower) in over {
            follower.end(Ok(()));
        }
    }
}

#[cfg(test)]
mod tests;
