//! The frames a client sends, as text.

use std::time::Duration;

use prombus_proto::frame::{
    Ack, AckMark, AfterNack, Auth, Ids, Mark, Membership, ModAck, Nack, Publish, PublishEvents,
    Seen, Subscribe, SubscribeOptions, Token,
};
use prombus_proto::limits::{MAX_FRAME_EVENTS, MAX_LEASE_MS, MAX_MARK_TTL_MS, MIN_MARK_TTL_MS};
use prombus_proto::{ClientFrame, ClientOp, EventId, NewEvent, Topic};
use tokio_tungstenite::tungstenite::Utf8Bytes;

/// The most ids in one SEEN, MARK or ACK.
pub(crate) const MAX_IDS: usize = MAX_FRAME_EVENTS;

fn frame(op: ClientOp) -> Utf8Bytes {
    let mut json = Vec::with_capacity(128);
    ClientFrame { corr: None, op }.write(&mut json);
    Utf8Bytes::try_from(json).expect("frames are written as UTF-8")
}

pub(super) fn auth(token: &Token) -> Utf8Bytes {
    frame(ClientOp::Auth(Auth { token: Some(token.clone()) }))
}

pub(crate) fn publish(topic: Topic, event: NewEvent) -> Utf8Bytes {
    frame(ClientOp::Publish(Publish { topic, events: PublishEvents::One(event) }))
}

pub(crate) fn publish_many(topic: Topic, events: Vec<NewEvent>) -> Utf8Bytes {
    frame(ClientOp::Publish(Publish { topic, events: PublishEvents::Many(events) }))
}

pub(super) fn subscribe(membership: &Membership, opts: &SubscribeOptions) -> Utf8Bytes {
    let Membership { topic, group } = membership.clone();
    frame(ClientOp::Subscribe(Subscribe { topic, group, opts: opts.clone() }))
}

pub(super) fn unsubscribe(membership: &Membership) -> Utf8Bytes {
    frame(ClientOp::Unsubscribe(membership.clone()))
}

pub(super) fn pause(membership: &Membership) -> Utf8Bytes {
    frame(ClientOp::Pause(membership.clone()))
}

pub(super) fn resume(membership: &Membership) -> Utf8Bytes {
    frame(ClientOp::Resume(membership.clone()))
}

pub(super) fn nack(
    membership: &Membership,
    id: EventId,
    reason: String,
    next: AfterNack,
) -> Utf8Bytes {
    let Membership { topic, group } = membership.clone();
    let ids = Ids::One(id);
    frame(ClientOp::Nack(Nack { topic, group, ids, reason: Some(reason), next }))
}

pub(super) fn modack(membership: &Membership, id: EventId, extend: Duration) -> Utf8Bytes {
    let Membership { topic, group } = membership.clone();
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

/// ACK; with `mark`, the events are marked for that long in the same commit.
pub(super) fn ack(membership: &Membership, ids: &[EventId], mark: Option<Duration>) -> Utf8Bytes {
    ack_frame(membership, ids, mark, None)
}

/// ACK that marks the event and publishes `events` in the same commit.
pub(super) fn ack_and_publish(
    membership: &Membership,
    id: &EventId,
    mark: Duration,
    events: Vec<(Topic, NewEvent)>,
) -> Utf8Bytes {
    ack_frame(membership, std::slice::from_ref(id), Some(mark), Some(events))
}

fn ack_frame(
    membership: &Membership,
    ids: &[EventId],
    mark: Option<Duration>,
    publish: Option<Vec<(Topic, NewEvent)>>,
) -> Utf8Bytes {
    let Membership { topic, group } = membership.clone();
    let mark = mark.map(|ttl| AckMark { ttl_ms: Some(ttl_ms(ttl)) });
    frame(ClientOp::Ack(Ack { topic, group, ids: ids_of(ids), mark, publish }))
}

pub(crate) fn seen(membership: &Membership, ids: &[EventId]) -> Utf8Bytes {
    let Membership { topic, group } = membership.clone();
    frame(ClientOp::Seen(Seen { topic, group, ids: ids_of(ids) }))
}

pub(crate) fn mark(membership: &Membership, ids: &[EventId], ttl: Duration) -> Utf8Bytes {
    let Membership { topic, group } = membership.clone();
    frame(ClientOp::Mark(Mark { topic, group, ids: ids_of(ids), ttl_ms: Some(ttl_ms(ttl)) }))
}
