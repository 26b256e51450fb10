//! A session under test: its server is the test itself, its time a number.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use prombus_proto::frame::{Membership, Outcome, SubscribeOptions, Token};
use prombus_proto::{EventId, Group, SeededRandom, Topic};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio_tungstenite::tungstenite::Utf8Bytes;

use super::requests::{Request, Retrying};
use super::subscriber::{Following, Form};
use super::{Command, Session, SessionSettings, Settled};
use crate::Result;
use crate::consuming::handler::Handled;
use crate::consuming::received::Delivery;

pub(super) struct Scene {
    pub(super) session: Session,
    began: Instant,
    pub(super) now: Instant,
    window: Arc<Semaphore>,
}

/// A subscription of group g to the topic t.
pub(super) struct Followed {
    pub(super) started: oneshot::Receiver<Result<()>>,
    pub(super) ended: watch::Receiver<Option<Result<()>>>,
}

impl Scene {
    /// Connected, without a token.
    pub(super) fn connected() -> Self {
        let mut scene = Self::new(None);
        assert_eq!(scene.session.connected(), None);
        scene
    }

    pub(super) fn new(token: Option<&str>) -> Self {
        let retrying = Retrying {
            first: Duration::from_millis(100),
            longest: Duration::from_secs(1),
            waits_for_rate: true,
        };
        let settings = SessionSettings { retrying, max_frame_bytes: 1000 };
        let token = token.map(|token| Token::new(token.to_owned()));
        let now = Instant::now();
        Self {
            session: Session::new(settings, token, Arc::new(SeededRandom::new(1))),
            began: now,
            now,
            window: Arc::new(Semaphore::new(100)),
        }
    }

    /// Goes on to so many milliseconds after the beginning.
    pub(super) fn at(&mut self, ms: u64) {
        self.now = self.began + Duration::from_millis(ms);
        self.session.wake(self.now);
    }

    /// Asks for `frame` to be published to the topic t, in so many milliseconds if there is an end.
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

    /// How much room there is.
    pub(super) fn room(&self) -> usize {
        self.window.available_permits()
    }

    /// All that is to be sent now.
    pub(super) fn sent(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.session.next_frame(self.now)).map(|it| it.to_string()).collect()
    }

    /// The server says this.
    pub(super) fn receive(&mut self, json: &str) -> Result<()> {
        self.session.received(&Bytes::copy_from_slice(json.as_bytes()), self.now)
    }

    pub(super) fn ok(&mut self) {
        self.receive(r#"{"op":"OK"}"#).unwrap();
    }

    pub(super) fn refuse(&mut self, code: &str, more: &str) {
        self.receive(&format!(r#"{{"op":"ERR","code":"{code}","msg":"because"{more}}}"#)).unwrap();
    }

    /// An event comes, on lease for a second.
    pub(super) fn event(&mut self, id: &str) -> Result<()> {
        let event = format!(r#"{{"seq":1,"id":"{id}","ts":1,"topic":"t","payload":1}}"#);
        let ctx = r#"{"attempt":1,"ack_deadline_ms":1000}"#;
        let head = r#"{"op":"EVENT","topic":"t","group":"g""#;
        self.receive(&format!(r#"{head},"event":{event},"ctx":{ctx}}}"#))
    }

    pub(super) fn follow(
        &mut self,
        form: Form,
        max_in_flight: u32,
        concurrency: usize,
    ) -> Followed {
        let (started_sender, started) = oneshot::channel();
        let (ended_sender, ended) = watch::channel(None);
        let opts =
            SubscribeOptions { max_in_flight: Some(max_in_flight), ..SubscribeOptions::default() };
        self.session.command(Command::Subscribe(Box::new(Following {
            which: which(),
            opts,
            form,
            concurrency,
            handler: Arc::new(|_| Box::pin(async { Handled::Done })),
            started: started_sender,
            ended: ended_sender,
        })));
        Followed { started, ended }
    }

    /// The same, and the server has taken it.
    pub(super) fn followed(
        &mut self,
        form: Form,
        max_in_flight: u32,
        concurrency: usize,
    ) -> Followed {
        let mut followed = self.follow(form, max_in_flight, concurrency);
        assert_eq!(ops(&self.sent()), ["SUBSCRIBE"]);
        self.ok();
        followed.started.try_recv().unwrap().unwrap();
        followed
    }

    /// The ids of those whose handlers start now.
    pub(super) fn started(&mut self) -> Vec<String> {
        self.started_with_deliveries().into_iter().map(|(id, _)| id).collect()
    }

    pub(super) fn started_with_deliveries(&mut self) -> Vec<(String, Delivery)> {
        let starts = std::iter::from_fn(|| self.session.start());
        starts.map(|start| (start.id.to_string(), start.delivery)).collect()
    }

    pub(super) fn handled(&mut self, id: &str, handled: Handled) {
        let id = EventId::new(id).unwrap();
        self.session.settled(Settled { which: which(), id, handled });
    }

    pub(super) fn reconnect(&mut self) {
        self.session.disconnected();
        assert_eq!(self.session.connected(), None);
    }
}

pub(super) fn which() -> Membership {
    Membership { topic: Topic::new("t").unwrap(), group: Group::new("g").unwrap() }
}

/// The operations of these frames.
pub(super) fn ops(frames: &[String]) -> Vec<String> {
    let op = |frame: &String| {
        let frame: serde_json::Value = serde_json::from_str(frame).unwrap();
        frame["op"].as_str().unwrap().to_owned()
    };
    frames.iter().map(op).collect()
}

/// A frame of that subscription with these members behind it.
pub(super) fn frame(op: &str, members: &str) -> String {
    format!(r#"{{"op":"{op}","topic":"t","group":"g"{members}}}"#)
}
