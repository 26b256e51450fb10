//! The frames that a session makes itself, as text to be sent.

use std::time::Duration;

use prombus_proto::frame::{
    Ack, AckMark, Auth, Ids, Mark, Membership, ModAck, Nack, Publish, PublishEvents, Seen,
    Subscribe, SubscribeOptions, Token,
};
use prombus_proto::limits::{
    MAX_FRAME_EVENTS, MAX_LEASE_MS, MAX_MARK_TTL_MS, MAX_NACK_DELAY_MS, MIN_MARK_TTL_MS,
};
use prombus_proto::{ClientFrame, ClientOp, EventId, NewEvent, Topic};
use tokio_tungstenite::tungstenite::Utf8Bytes;

/// Ids in one SEEN, MARK or ACK.
pub(crate) const MOST_IDS: usize = MAX_FRAME_EVENTS;

fn frame(op: ClientOp) -> Utf8Bytes {
    let mut json = Vec::with_capacity(128);
    ClientFrame { corr: None, op }.write(&mut json);
    Utf8Bytes::try_from(json).expect("frames are written as UTF-8")
}

pub(super) fn auth(token: &Token) -> Utf8Bytes {
    frame(ClientOp::Auth(Auth { token: token.clone() }))
}

pub(crate) fn publish(topic: Topic, event: NewEvent) -> Utf8Bytes {
    frame(ClientOp::Publish(Publish { topic, events: PublishEvents::One(event) }))
}

pub(crate) fn publish_many(topic: Topic, events: Vec<NewEvent>) -> Utf8Bytes {
    frame(ClientOp::Publish(Publish { topic, events: PublishEvents::Many(events) }))
}

pub(super) fn subscribe(which: &Membership, opts: &SubscribeOptions) -> Utf8Bytes {
    let Membership { topic, group } = which.clone();
    frame(ClientOp::Subscribe(Subscribe { topic, group, opts: opts.clone() }))
}

pub(super) fn unsubscribe(which: &Membership) -> Utf8Bytes {
    frame(ClientOp::Unsubscribe(which.clone()))
}

pub(super) fn pause(which: &Membership) -> Utf8Bytes {
    frame(ClientOp::Pause(which.clone()))
}

pub(super) fn resume(which: &Membership) -> Utf8Bytes {
    frame(ClientOp::Resume(which.clone()))
}

pub(super) fn nack(
    which: &Membership,
    id: EventId,
    reason: String,
    delay: Option<Duration>,
) -> Utf8Bytes {
    let Membership { topic, group } = which.clone();
    let delay_ms = delay.map(|delay| millis(delay).min(MAX_NACK_DELAY_MS));
    frame(ClientOp::Nack(Nack { topic, group, id, reason: Some(reason), delay_ms }))
}

pub(super) fn modack(which: &Membership, id: EventId, extend: Duration) -> Utf8Bytes {
    let Membership { topic, group } = which.clone();
    let extend_ms = millis(extend).min(MAX_LEASE_MS);
    frame(ClientOp::ModAck(ModAck { topic, group, id, extend_ms }))
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn ids_of(ids: &[EventId]) -> Ids {
    match ids {
        [one] => Ids::One(one.clone()),
        many => Ids::Many(many.to_vec()),
    }
}

fn ttl_ms(ttl: Duration) -> u64 {
    millis(ttl).clamp(MIN_MARK_TTL_MS, MAX_MARK_TTL_MS)
}

/// ACK, and where `mark` says how long, marked in the same commit.
pub(super) fn ack(which: &Membership, ids: &[EventId], mark: Option<Duration>) -> Utf8Bytes {
    ack_and(which, ids, mark, None)
}

/// ACK, and published in the same commit.
pub(super) fn ack_and_publish(
    which: &Membership,
    id: &EventId,
    mark: Duration,
    events: Vec<(Topic, NewEvent)>,
) -> Utf8Bytes {
    ack_and(which, std::slice::from_ref(id), Some(mark), Some(events))
}

fn ack_and(
    which: &Membership,
    ids: &[EventId],
    mark: Option<Duration>,
    publish: Option<Vec<(Topic, NewEvent)>>,
) -> Utf8Bytes {
    let Membership { topic, group } = which.clone();
    let mark = mark.map(|ttl| AckMark { ttl_ms: Some(ttl_ms(ttl)) });
    frame(ClientOp::Ack(Ack { topic, group, ids: ids_of(ids), mark, publish }))
}

pub(crate) fn seen(which: &Membership, ids: &[EventId]) -> Utf8Bytes {
    let Membership { topic, group } = which.clone();
    frame(ClientOp::Seen(Seen { topic, group, ids: ids_of(ids) }))
}

pub(crate) fn mark(which: &Membership, ids: &[EventId], ttl: Duration) -> Utf8Bytes {
    let Membership { topic, group } = which.clone();
    frame(ClientOp::Mark(Mark { topic, group, ids: ids_of(ids), ttl_ms: Some(ttl_ms(ttl)) }))
}
