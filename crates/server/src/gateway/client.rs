//! The state of one client, and the dispatch of its frames.

mod active_subscription;
mod command;
mod pending_batch;
mod refusing;

use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use prombus_bus::{
    Connection, Delivery, DeliveryQueue, EndedSubscription, Memory, Principal, Refusal, Transport,
    dead_letter_topic,
};
use prombus_proto::frame::{
    Ack, ClientFrame, ClientOp, Corr, FrameError, FrameLimits, Mark, answer,
};
use prombus_proto::{ErrorCode, Group, Timestamp, Topic};
use tokio_tungstenite::tungstenite::Utf8Bytes;

use self::active_subscription::ActiveSubscription;
use self::pending_batch::PendingBatch;
use super::Gateway;
use super::answers::{Answers, LaterAnswer, PendingAnswer, Written};
use super::outgoing::Outgoing;
use crate::accept::Arrival;
use crate::auth::{Action, Caller, Credential, Grant, Identity};
use crate::config;
use crate::notices::SlowConsumer;

/// One client: its rights, its subscriptions, its pending answers.
pub(super) struct Client {
    gateway: Arc<Gateway>,
    /// Where the client is, or the last proxy before it.
    caller: Caller,
    connection: Connection,
    answers: Answers,
    subscriptions: HashMap<(Topic, Group), ActiveSubscription>,
    /// Subscriptions that the bus has ended and the client is not told of yet.
    ended: Vec<EndedSubscription>,
    /// The newest token, or before the first AUTH what was presented for the ticket of the connection, or its
    /// certificate.
    credential: Option<Credential>,
    /// What the credential allows. On a server that requires tokens, `None` if it allows nothing, such as
    /// before the first AUTH.
    grant: Option<Grant>,
    batch: PendingBatch,
}

/// The result of dispatching a frame.
enum Dispatched {
    /// An answer is pending, or will be when the pending batch is submitted.
    Done,
    Refused(Option<Corr>, Refusal),
    /// The frame has to wait until [`Client::prepare`] is done.
    NotYet(ClientFrame),
    Mark(Mark, Option<Corr>),
}

/// Reading stops while this many frames are unanswered.
const MAX_UNANSWERED_FRAMES: usize = 10_000;
/// Nothing is read from a connection while this many ids of its ACKs and NACKs are unanswered: as many as one
/// frame may have.
const MAX_UNANSWERED_IDS: usize = 10_000;
/// Reading stops while unanswered frames have more bytes than this many frames of the maximum size:
/// a pending request and its `corr` keep their frame in memory.
const MAX_UNANSWERED_LARGE_FRAMES: usize = 4;
/// The lower bound of that limit, for servers with a small maximum frame size.
const MIN_UNANSWERED_BYTES: usize = 1 << 20;

impl Client {
    pub(super) fn new(gateway: Arc<Gateway>, arrival: &Arrival) -> Self {
        let caller = Caller { address: arrival.address, transport: Transport::Ws };
        let certificate = arrival.certificate.clone().map(Credential::Certificate);
        let credential = arrival.presented.clone().or(certificate);
        let now = gateway.clock.now();
        let grant = gateway.access().authenticator.check_again(credential.as_ref(), now);
        let connection = gateway.bus.connect();
        let principal = match &grant {
            Some(grant) => {
                // The login by a ticket was recorded when it was redeemed.
                if arrival.presented.is_none() {
                    gateway.logins.recognized(grant, caller);
                }
                grant.principal_at(caller.address)
            }
            None => Principal::of_address(caller.address),
        };
        gateway.bus.identify(&connection, &principal);
        Self {
            connection,
            gateway,
            caller,
            answers: Answers::default(),
            subscriptions: HashMap::new(),
            ended: Vec::new(),
            credential,
            grant,
            batch: PendingBatch::None,
        }
    }

    /// Serves one text frame. A frame that joined the pending batch takes effect with
    /// [`Client::submit_batch`].
    pub(super) async fn serve(&mut self, text: &Utf8Bytes) {
        self.answers.received(text.len());
        let limits = FrameLimits { max_payload_bytes: self.settings().max_frame_bytes };
        let mut dispatched = self.dispatch(ClientFrame::parse_text(text, text.as_ref(), &limits));
        if let Dispatched::NotYet(frame) = dispatched {
            self.prepare(&frame.op).await;
            dispatched = self.dispatch(Ok(frame));
        }
        let (corr, refusal) = match dispatched {
            Dispatched::Done => return,
            Dispatched::Refused(corr, refusal) => (corr, refusal),
            Dispatched::Mark(mark, mut corr) => match self.mark(&mark, &mut corr).await {
                Ok(()) => return,
                Err(refusal) => (corr, refusal),
            },
            Dispatched::NotYet(_) => unreachable!("everything is prepared"),
        };
        self.refuse_frame(corr.as_ref(), refusal, text.len()).await;
    }

    /// Runs the command of a frame. A command takes `corr` unless it is refused.
    ///
    /// Not async, and given the result of the parser as it is: most frames are a PUBLISH that joins the
    /// pending batch, and moving it into the future of [`Client::serve`] would copy it.
    fn dispatch(&mut self, parsed: Result<ClientFrame, FrameError>) -> Dispatched {
        let frame = match parsed {
            Ok(frame) if self.batch.must_precede(&frame.op) || self.awaits_group(&frame.op) => {
                return Dispatched::NotYet(frame);
            }
            Ok(frame) => frame,
            Err(FrameError { code, msg, corr }) => {
                return Dispatched::Refused(corr, Refusal::new(code, msg));
            }
        };
        let mut corr = frame.corr;
        let served = match frame.op {
            ClientOp::Publish(publish) => self.publish(publish, &mut corr),
            ClientOp::Ack(ack) => self.ack(ack, &mut corr),
            ClientOp::Nack(nack) => self.nack(nack, &mut corr),
            ClientOp::ModAck(modack) => self.modack(modack, &mut corr),
            ClientOp::Seen(seen) => self.seen(seen, &mut corr),
            ClientOp::Pause(membership) => self.pause(&membership, &mut corr),
            ClientOp::Resume(membership) => self.resume(&membership, &mut corr),
            ClientOp::Unsubscribe(membership) => self.unsubscribe(membership, &mut corr),
            ClientOp::Auth(auth) => self.authenticate(&auth, corr.as_ref()),
            ClientOp::Subscribe(subscribe) => self.subscribe(subscribe, &mut corr),
            ClientOp::Mark(mark) => return Dispatched::Mark(mark, corr),
        };
        match served {
            Ok(()) => Dispatched::Done,
            Err(refusal) => Dispatched::Refused(corr, refusal),
        }
    }

    /// Does what has to come before `op`.
    async fn prepare(&mut self, op: &ClientOp) {
        self.submit_batch().await;
        for ((topic, _), active) in &mut self.subscriptions {
            if active.is_joining() && may_publish_to(op, topic) {
                active.placed().await;
            }
        }
    }

    /// Returns `true` if `op` may publish to a topic on which the client is joining a group. A group that starts
    /// with the latest event must not miss what its client publishes after the SUBSCRIBE.
    fn awaits_group(&self, op: &ClientOp) -> bool {
        self.answers.has_subscribe()
            && self
                .subscriptions
                .iter()
                .any(|((topic, _), active)| active.is_joining() && may_publish_to(op, topic))
    }

    /// Submits the pending batch.
    pub(super) async fn submit_batch(&mut self) {
        match std::mem::take(&mut self.batch) {
            PendingBatch::None => {}
            // Its only frame was refused.
            PendingBatch::Publish { frames, .. } if frames.is_empty() => {}
            PendingBatch::Publish { events, frames } => {
                match events.submit(&self.gateway.bus).await {
                    Ok(commit) => self.answers.push(PendingAnswer::Published { commit, frames }),
                    Err(refusal) => {
                        for frame in frames {
                            self.answers.refuse(frame.corr.as_ref(), &refusal);
                        }
                    }
                }
            }
            PendingBatch::Ack { topic, group, ids, mark, charges, frames } => {
                match self.subscriptions.get(&(topic, group)) {
                    Some(ActiveSubscription { subscription, .. }) => {
                        let answer = match mark.map(|mark| self.marked_until(mark)) {
                            Some(until) => {
                                let bus = &self.gateway.bus;
                                let acked = bus.ack_and_mark(subscription, ids, until, charges);
                                let acked = LaterAnswer::new(acked);
                                PendingAnswer::AckedAndMarked { acked, frames }
                            }
                            None => {
                                let reply = subscription.ack_charged(ids, None, None, charges);
                                PendingAnswer::Acked { reply, frames }
                            }
                        };
                        self.answers.push(answer);
                    }
                    None => {
                        for frame in frames {
                            self.answers.refuse(frame.corr.as_ref(), &Refusal::not_subscribed());
                        }
                    }
                }
            }
        }
    }

    /// Checks that the client may perform `action` now.
    fn check(&self, action: Action<'_>) -> Result<(), Refusal> {
        let Some(grant) = &self.grant else {
            let message = "authenticate first: send AUTH with a token";
            return Err(Refusal::new(ErrorCode::Unauthorized, message));
        };
        self.gateway.logins.authorize(grant, self.caller, action, || self.now())
    }

    fn active_subscription(
        &mut self,
        topic: &Topic,
        group: &Group,
    ) -> Result<&mut ActiveSubscription, Refusal> {
        self.check(Action::Consume { topic, group })?;
        let key = (topic.clone(), group.clone());
        self.subscriptions.get_mut(&key).ok_or_else(Refusal::not_subscribed)
    }

    pub(super) fn settings(&self) -> &config::GatewayConfig {
        &self.gateway.settings
    }

    pub(super) const fn is_authenticated(&self) -> bool {
        self.grant.is_some()
    }

    /// Returns how long the client's rights last and how long it may stay, or `None` if its rights do not
    /// expire.
    pub(super) fn rights_last(&self) -> Option<(Duration, Duration)> {
        let end = self.grant.as_ref()?.ends_at()?;
        let grace = self.settings().expired_token_grace.as_millis();
        let closed = end.plus_ms(u64::try_from(grace).unwrap_or(u64::MAX));
        let now = self.now();
        let until = |time: Timestamp| Duration::from_millis(time.0.saturating_sub(now.0));
        Some((until(end), until(closed)))
    }

    pub(super) fn has_subscriptions(&self) -> bool {
        !self.subscriptions.is_empty()
    }

    /// Records that the client is closed because it did not read `unread_bytes`.
    pub(super) fn is_slow(&self, unread_bytes: usize) {
        let identity = self.grant.as_ref().map_or(Identity::Anyone, |it| it.identity.clone());
        let closed = SlowConsumer {
            address: self.caller.address,
            subscriptions: self.subscriptions.len(),
            subscription: self.subscriptions.keys().next().cloned(),
            unread_bytes,
            waited: self.settings().slow_consumer_timeout,
        };
        self.gateway.bus.metrics().slow_consumer();
        self.gateway.notices.slow_consumer(identity, closed);
    }

    pub(super) fn end_subscriptions(&mut self) {
        self.subscriptions.clear();
    }

    /// Stops deliveries until the next AUTH.
    pub(super) fn stop_deliveries(&self) {
        for active in self.subscriptions.values() {
            // No one waits for the reply.
            drop(active.subscription.pause());
        }
    }

    /// Returns when the client will have paid the tokens that it owes, before which none of its frames is
    /// read, or `None` if it owes nothing.
    pub(super) fn pays_debt_at(&self) -> Option<Instant> {
        self.connection.limit.pays_debt_at(now())
    }

    /// Returns whether more frames may be read, given the unanswered ones.
    pub(super) fn may_read(&self) -> bool {
        let largest = MAX_UNANSWERED_LARGE_FRAMES * self.settings().max_frame_bytes;
        self.answers.frames() < MAX_UNANSWERED_FRAMES
            && self.answers.ids() < MAX_UNANSWERED_IDS
            && self.answers.frame_bytes() < largest.max(MIN_UNANSWERED_BYTES)
    }

    /// Returns the bytes of all unanswered frames.
    pub(super) const fn unanswered_bytes(&self) -> usize {
        self.answers.frame_bytes()
    }

    /// Returns the budgets of buffers.
    pub(super) fn memory(&self) -> &Memory {
        self.gateway.bus.memory()
    }

    pub(super) fn has_pending_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Writes the oldest answer when it is ready. Stays pending when there is none.
    pub(super) fn poll_answer(
        &mut self,
        context: &mut Context<'_>,
        out: &mut Outgoing,
    ) -> Poll<()> {
        let written = ready!(self.answers.poll_write(context, out, &self.gateway.bus));
        let Written { subscribe, refused } = written;
        if let Some(answered) = subscribe {
            self.subscribe_answered(answered);
        }
        if let Some(refused) = refused {
            self.frames_refused(refused);
        }
        Poll::Ready(())
    }

    pub(super) const fn delivery_queue(&self) -> &Arc<DeliveryQueue> {
        &self.connection.delivery_queue
    }

    /// Takes about `bytes` of deliveries. A client that lost its rights gets none of those that were queued
    /// before.
    pub(super) fn take_deliveries(&self, bytes: usize, out: &mut Vec<Delivery>) {
        if self.grant.is_some() {
            self.connection.delivery_queue.take(bytes, out);
        }
    }

    /// Writes an ENDED for each subscription that the bus has ended, once its SUBSCRIBE is answered.
    pub(super) fn write_ended(&mut self, out: &mut Outgoing) {
        self.ended.append(&mut self.connection.delivery_queue.take_ended());
        for ended in std::mem::take(&mut self.ended) {
            let key = (ended.topic.clone(), ended.group.clone());
            let known = self.subscriptions.get(&key);
            // The client has unsubscribed, and perhaps subscribed again.
            let Some(active) = known.filter(|it| it.subscription.member() == ended.member) else {
                continue;
            };
            if !active.is_answered() {
                self.ended.push(ended);
                continue;
            }
            self.subscriptions.remove(&key);
            out.text(|text| answer::write_ended(text, &ended.topic, &ended.group, ended.reason));
        }
    }

    fn now(&self) -> Timestamp {
        self.gateway.clock.now()
    }
}

/// Returns `true` if `op` may publish to `topic`.
fn may_publish_to(op: &ClientOp, topic: &Topic) -> bool {
    match op {
        ClientOp::Publish(publish) => publish.topic == *topic,
        ClientOp::Ack(Ack { publish: Some(events), .. }) => {
            events.iter().any(|(target, _)| target == topic)
        }
        ClientOp::Nack(nack) => dead_letter_topic(&nack.topic).is_ok_and(|dlq| dlq == *topic),
        _ => false,
    }
}

/// Returns the current time of the runtime, which limits count in.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
