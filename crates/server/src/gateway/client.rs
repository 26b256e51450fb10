//! What one client has at the gateway, whatever the stream it came by.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use prombus_bus::{Connection, PublishBatch, Refusal, Subscription};
use prombus_proto::frame::{AckMark, ClientFrame, ClientOp, Corr, FrameError, FrameLimits};
use prombus_proto::{ErrorCode, EventId, Group, Timestamp, Topic};
use tokio_tungstenite::tungstenite::Utf8Bytes;

use super::Gateway;
use super::answers::{AckedFrame, Answers, Due, PublishedFrame, not_subscribed};
use crate::auth::{Action, Grant};

/// One client: who it is, what it subscribes to, what it waits for.
pub(super) struct Client {
    pub(super) gateway: Arc<Gateway>,
    pub(super) connection: Connection,
    pub(super) answers: Answers,
    pub(super) subscriptions: HashMap<(Topic, Group), Subscribed>,
    /// Nobody yet, where tokens are needed.
    pub(super) grant: Option<Grant>,
    /// Deliveries wait until this many frames are answered: nobody gets an event before the OK of
    /// its SUBSCRIBE.
    pub(super) deliver_after: u64,
    pub(super) together: Together,
}

/// A subscription, and whether its client paused it.
pub(super) struct Subscribed {
    pub(super) subscription: Subscription,
    pub(super) is_paused: bool,
}

/// Frames in a row that are asked together.
#[derive(Debug, Default)]
pub(super) enum Together {
    #[default]
    Nothing,
    Publishing {
        prepared: PublishBatch,
        frames: Vec<PublishedFrame>,
    },
    Acking {
        topic: Topic,
        group: Group,
        ids: Vec<EventId>,
        /// How they are marked, if they are to be.
        mark: Option<AckMark>,
        frames: Vec<AckedFrame>,
    },
}

/// How far a frame came without waiting.
enum AtOnce {
    Done,
    Refused(Option<Corr>, Refusal),
    NotYet(ClientFrame),
}

/// How many bytes of events are held back to be submitted together.
const TOGETHER_BYTES: usize = 1 << 20;
/// How many ids are held back to be asked together.
const TOGETHER_IDS: usize = 10_000;

impl Together {
    fn is_full(&self) -> bool {
        match self {
            Self::Nothing => false,
            Self::Publishing { prepared, .. } => prepared.bytes() > TOGETHER_BYTES,
            Self::Acking { ids, .. } => ids.len() >= TOGETHER_IDS,
        }
    }

    fn takes_publishes(&self) -> bool {
        matches!(self, Self::Publishing { .. }) && !self.is_full()
    }

    /// Whether `op` can be asked together with what is held back. An ACK that can is of a subscription
    /// that was looked up for the first of them.
    fn is_joined_by(&self, op: &ClientOp) -> bool {
        match (self, op) {
            (Self::Publishing { .. }, ClientOp::Publish(_)) => true,
            (Self::Acking { topic, group, mark, .. }, ClientOp::Ack(ack)) => {
                ack.publish.is_none()
                    && ack.topic == *topic
                    && ack.group == *group
                    && ack.mark == *mark
            }
            _ => false,
        }
    }
}

impl Client {
    pub(super) fn new(gateway: Arc<Gateway>) -> Self {
        let grant = gateway.authenticator.is_open().then(Grant::unrestricted);
        Self {
            connection: gateway.bus.connect(),
            gateway,
            answers: Answers::default(),
            subscriptions: HashMap::new(),
            grant,
            deliver_after: 0,
            together: Together::Nothing,
        }
    }

    /// Does what a text frame says. What can wait for more of its kind is asked by
    /// [`Client::ask_together`].
    pub(super) async fn serve(&mut self, text: &Utf8Bytes) {
        self.answers.owe(text.len());
        let (corr, refusal) = match self.serve_at_once(text) {
            AtOnce::Done => return,
            AtOnce::Refused(corr, refusal) => (corr, refusal),
            AtOnce::NotYet(ClientFrame { corr, op }) => {
                let corr_of_refusal = corr.clone();
                match self.apply(op, corr).await {
                    Ok(()) => return,
                    Err(refusal) => (corr_of_refusal, refusal),
                }
            }
        };
        self.ask_together().await;
        self.answers.refuse(corr.as_ref(), &refusal);
    }

    /// Serves a PUBLISH that joins others. Most frames are one, and nothing has to be waited for: what
    /// they ask for is not copied to where it would outlast that.
    fn serve_at_once(&mut self, text: &Utf8Bytes) -> AtOnce {
        let limits = FrameLimits { max_payload_bytes: self.gateway.settings.max_frame_bytes };
        match ClientFrame::parse_text(text, text.as_ref(), &limits) {
            Ok(ClientFrame { mut corr, op: ClientOp::Publish(publish) })
                if self.together.takes_publishes() =>
            {
                match self.publish(publish, &mut corr) {
                    Ok(()) => AtOnce::Done,
                    Err(refusal) => AtOnce::Refused(corr, refusal),
                }
            }
            Ok(frame) => AtOnce::NotYet(frame),
            Err(FrameError { code, msg, corr }) => AtOnce::Refused(corr, Refusal::new(code, msg)),
        }
    }

    async fn apply(&mut self, op: ClientOp, corr: Option<Corr>) -> Result<(), Refusal> {
        if self.together.is_full() || !self.together.is_joined_by(&op) {
            self.ask_together().await;
        }
        match op {
            ClientOp::Auth(auth) => self.authenticate(&auth, corr.as_ref()),
            ClientOp::Publish(publish) => self.publish(publish, &mut { corr }),
            ClientOp::Subscribe(subscribe) => self.subscribe(subscribe, corr.as_ref()).await,
            ClientOp::Unsubscribe(which) => self.unsubscribe(which, corr),
            ClientOp::Ack(ack) => self.ack(ack, corr),
            ClientOp::Nack(nack) => self.nack(nack, corr),
            ClientOp::ModAck(modack) => self.modack(modack, corr),
            ClientOp::Pause(which) => self.pause(&which, corr),
            ClientOp::Resume(which) => self.resume(&which, corr),
            ClientOp::Seen(seen) => self.seen(seen, corr),
            ClientOp::Mark(mark) => self.mark(&mark, corr).await,
        }
    }

    /// Asks what was held back to be asked together.
    pub(super) async fn ask_together(&mut self) {
        match std::mem::take(&mut self.together) {
            Together::Nothing => {}
            // The only frame was refused.
            Together::Publishing { frames, .. } if frames.is_empty() => {}
            Together::Publishing { prepared, frames } => {
                match self.gateway.bus.submit(prepared).await {
                    Ok(submitted) => self.answers.push(Due::Published { submitted, frames }),
                    Err(refusal) => {
                        for frame in frames {
                            self.answers.refuse(frame.corr.as_ref(), &refusal);
                        }
                    }
                }
            }
            Together::Acking { topic, group, ids, mark, frames } => {
                match self.subscriptions.get(&(topic, group)) {
                    Some(known) => {
                        let mark_until = mark.map(|mark| self.marked_until(mark));
                        let answer = known.subscription.ack(ids, mark_until, None);
                        self.answers.push(Due::Acked { answer, frames });
                    }
                    None => {
                        for frame in frames {
                            self.answers.refuse(frame.corr.as_ref(), &not_subscribed());
                        }
                    }
                }
            }
        }
    }

    /// Whether the client may do this now.
    pub(super) fn check(&self, action: Action<'_>) -> Result<(), Refusal> {
        let Some(grant) = &self.grant else {
            let message = "authenticate first: send AUTH with a token";
            return Err(Refusal::new(ErrorCode::Unauthorized, message));
        };
        grant.authorize(action, || self.now()).map_err(|denied| {
            let message = match action {
                Action::Publish(topic) => format!("publish to {topic}: {denied}"),
                Action::Subscribe(topic) => format!("subscribe to {topic}: {denied}"),
                Action::Admin => denied.to_string(),
            };
            Refusal::new(denied.code(), message)
        })
    }

    pub(super) fn subscribed(
        &mut self,
        topic: &Topic,
        group: &Group,
    ) -> Result<&mut Subscribed, Refusal> {
        self.check(Action::Subscribe(topic))?;
        let key = (topic.clone(), group.clone());
        self.subscriptions.get_mut(&key).ok_or_else(not_subscribed)
    }

    /// How long the client's rights last, if they end.
    pub(super) fn rights_last(&self) -> Option<Duration> {
        let end = self.grant.as_ref()?.ends_at()?;
        Some(Duration::from_millis(end.0.saturating_sub(self.now().0)))
    }

    pub(super) fn now(&self) -> Timestamp {
        self.gateway.clock.now()
    }
}
