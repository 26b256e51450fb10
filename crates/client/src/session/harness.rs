//! A session under test. The test plays the server and sets the time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use prombus_proto::frame::{Membership, Outcome, SubscribeOptions, Token};
use prombus_proto::{EventId, Group, SeededRandom, Topic};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio_tungstenite::tungstenite::Utf8Bytes;

use super::requests::{Request, RetryPolicy};
use super::subscriber::{AckMode, SubscribeRequest};
use super::{Command, Completion, Session, SessionSettings};
use crate::Result;
use crate::consuming::handler::Handled;
use crate::consuming::received::Delivery;

pub(super) struct Harness {
    pub(super) session: Session,
    started_at: Instant,
    pub(super) now: Instant,
    window: Arc<Semaphore>,
}

/// A subscription to the topic `t` as group `g`.
pub(super) struct Subscribed {
    pub(super) started: oneshot::Receiver<Result<()>>,
    pub(super) ended: watch::Receiver<Option<Result<()>>>,
}

impl Harness {
    /// Returns a connected session without a token.
    pub(super) fn connected() -> Self {
        let mut harness = Self::new(None);
        assert_eq!(harness.session.connected(), None);
        harness
    }

    pub(super) fn new(token: Option<&str>) -> Self {
        let retry = RetryPolicy {
            first: Duration::from_millis(100),
            longest: Duration::from_secs(1),
            waits_for_rate: true,
        };
        let settings = SessionSettings { retry, max_frame_bytes: 1000 };
        let token = token.map(|token| Token::new(token.to_owned()));
        let now = Instant::now();
        Self {
            session: Session::new(settings, token, Arc::new(SeededRandom::new(1))),
            started_at: now,
            now,
            window: Arc::new(Semaphore::new(100)),
        }
    }

    /// Sets the time to `ms` milliseconds after the start, and wakes the session.
    pub(super) fn at(&mut self, ms: u64) {
        self.now = self.started_at + Duration::from_millis(ms);
        self.session.wake(self.now);
    }

    /// Requests `frame` as a publish to the topic `t`.
    pub(super) fn publish(
        &mut self,
        frame: &str,
        timeout_ms: Option<u64>,
    ) -> oneshot::Receiver<Result<Outcome>> {
        let (reply, answer) = oneshot::channel();
        let permit = Arc::clone(&self.window).try_acquire_owned().unwrap();
        let deadline = timeout_ms.map(|ms| self.now + Duration::from_millis(ms));
        let topic = Topic::new("t").unwrap();
        let frame = Utf8Bytes::from(frame.to_owned());
        self.session.request(Request::new(frame, Some(topic), reply, deadline, permit));
        answer
    }

    /// Returns the free slots of the window.
    pub(super) fn room(&self) -> usize {
        self.window.available_permits()
    }

    /// Returns the frames that are sent now.
    pub(super) fn sent(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.session.next_frame(self.now)).map(|it| it.to_string()).collect()
    }

    /// Receives a frame from the server.
    pub(super) fn receive(&mut self, json: &str) -> Result<()> {
        self.session.received(&Bytes::copy_from_slice(json.as_bytes()), self.now)
    }

    pub(super) fn ok(&mut self) {
        self.receive(r#"{"op":"OK"}"#).unwrap();
    }

    pub(super) fn refuse(&mut self, code: &str, more: &str) {
        self.receive(&format!(r#"{{"op":"ERR","code":"{code}","msg":"because"{more}}}"#)).unwrap();
    }

    /// Delivers an event with a lease of one second.
    pub(super) fn event(&mut self, id: &str) -> Result<()> {
        let event = format!(r#"{{"seq":1,"id":"{id}","ts":1,"topic":"t","payload":1}}"#);
        let ctx = r#"{"attempt":1,"ack_deadline_ms":1000}"#;
        let head = r#"{"op":"EVENT","topic":"t","group":"g""#;
        self.receive(&format!(r#"{head},"event":{event},"ctx":{ctx}}}"#))
    }

    pub(super) fn subscribe(
        &mut self,
        mode: AckMode,
        max_in_flight: u32,
        concurrency: usize,
    ) -> Subscribed {
        let (started_sender, started) = oneshot::channel();
        let (ended_sender, ended) = watch::channel(None);
        let opts =
            SubscribeOptions { max_in_flight: Some(max_in_flight), ..SubscribeOptions::default() };
        self.session.command(Command::Subscribe(Box::new(SubscribeRequest {
            membership: membership(),
            opts,
            mode,
            concurrency,
            handler: Arc::new(|_| Box::pin(async { Handled::Done })),
            started: started_sender,
            ended: ended_sender,
        })));
        Subscribed { started, ended }
    }

    /// Subscribes, and has the server accept it.
    pub(super) fn subscribed(
        &mut self,
        mode: AckMode,
        max_in_flight: u32,
        concurrency: usize,
    ) -> Subscribed {
        let mut subscribed = self.subscribe(mode, max_in_flight, concurrency);
        assert_eq!(ops(&self.sent()), ["SUBSCRIBE"]);
        self.ok();
        subscribed.started.try_recv().unwrap().unwrap();
        subscribed
    }

    /// Returns the ids of the events whose handlers start now.
    pub(super) fn started(&mut self) -> Vec<String> {
        self.started_with_deliveries().into_iter().map(|(id, _)| id).collect()
    }

    pub(super) fn started_with_deliveries(&mut self) -> Vec<(String, Delivery)> {
        let calls = std::iter::from_fn(|| self.session.next_handler_call());
        calls.map(|call| (call.id.to_string(), call.delivery)).collect()
    }

    pub(super) fn handled(&mut self, id: &str, handled: Handled) {
        let id = EventId::new(id).unwrap();
        self.session.completed(Completion { membership: membership(), id, handled });
    }

    pub(super) fn reconnect(&mut self) {
        self.session.disconnected();
        assert_eq!(self.session.connected(), None);
    }
}

pub(super) fn membership() -> Membership {
    Membership { topic: Topic::new("t").unwrap(), group: Group::new("g").unwrap() }
}

/// Returns the ops of frames.
pub(super) fn ops(frames: &[String]) -> Vec<String> {
    let op = |frame: &String| {
        let frame: serde_json::Value = serde_json::from_str(frame).unwrap();
        frame["op"].as_str().unwrap().to_owned()
    };
    frames.iter().map(op).collect()
}

/// Returns a frame of that subscription with these members after the group.
pub(super) fn frame(op: &str, members: &str) -> String {
    format!(r#"{{"op":"{op}","topic":"t","group":"g"{members}}}"#)
}
