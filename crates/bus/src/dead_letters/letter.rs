//! A dead letter: what a group stores of an event that it gave up on.

use bytes::Bytes;
use prombus_engine::StoredEvent;
use prombus_proto::limits::MAX_EVENT_BYTES;
use prombus_proto::{
    EncodedEvent, EventId, Group, InvalidName, NewEvent, Payload, Seq, Timestamp, Topic,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::topics::FeedEvent;

#[derive(Clone, Debug)]
pub(crate) struct DeadLetter<'a> {
    pub(crate) topic: &'a Topic,
    pub(crate) group: &'a Group,
    /// `None` if the event cannot be read.
    pub(crate) original: Option<&'a FeedEvent>,
    pub(crate) error: &'a str,
    pub(crate) attempts: u32,
    pub(crate) ts: Timestamp,
}

/// Returns the topic for the dead letters of `topic`.
///
/// # Errors
///
/// If the name of `topic` leaves no room for the prefix.
pub fn dead_letter_topic(topic: &Topic) -> Result<Topic, InvalidName> {
    Topic::new(&format!("dlq.{topic}"))
}

/// A dead letter that was read back.
#[derive(Debug)]
pub(crate) struct ReadLetter<'a> {
    topic: Topic,
    pub(crate) group: Group,
    /// The event as it was delivered.
    pub(crate) original: Option<&'a RawValue>,
    pub(crate) original_id: Option<EventId>,
    pub(crate) error: String,
    pub(crate) attempts: u32,
    pub(crate) ts: Timestamp,
}

#[derive(Deserialize)]
struct LetterEvent<'a> {
    #[serde(borrow)]
    payload: LetterPayload<'a>,
    #[serde(default)]
    caused_by: Vec<EventId>,
}

#[derive(Deserialize)]
struct LetterPayload<'a> {
    topic: Topic,
    group: Group,
    #[serde(borrow, default)]
    original: Option<&'a RawValue>,
    #[serde(default)]
    err: String,
    #[serde(default)]
    attempts: u32,
    ts: Timestamp,
}

#[derive(Deserialize)]
struct Identity {
    seq: Seq,
    id: EventId,
    ts: Timestamp,
    topic: Topic,
}

/// Returns the topic whose dead letters `topic` has, if it is one of dead letters.
pub(crate) fn dead_letters_of(topic: &Topic) -> Option<Topic> {
    Topic::new(topic.as_str().strip_prefix("dlq.")?).ok()
}

impl<'a> ReadLetter<'a> {
    /// Returns `None` for an event that is no dead letter of `topic`: clients may publish to topics of dead letters.
    pub(crate) fn parse(event: &'a StoredEvent, topic: &Topic) -> Option<Self> {
        let LetterEvent { payload, caused_by } = serde_json::from_slice(&event.json).ok()?;
        if payload.topic != *topic {
            return None;
        }
        let LetterPayload { topic, group, original, err, attempts, ts } = payload;
        let original_id = caused_by.into_iter().next();
        Some(Self { topic, group, original, original_id, error: err, attempts, ts })
    }

    /// Returns where the original was in its topic.
    pub(crate) fn original_seq(&self) -> Option<Seq> {
        Some(self.identity()?.seq)
    }

    /// Returns the original.
    pub(crate) fn copy(&self) -> Option<FeedEvent> {
        let Identity { seq, id, ts, .. } = self.identity()?;
        let json = Bytes::copy_from_slice(self.original?.get().as_bytes());
        Some(StoredEvent { seq, ts, id, key: None, json }.into())
    }

    fn identity(&self) -> Option<Identity> {
        let identity: Identity = serde_json::from_str(self.original?.get()).ok()?;
        let is_consistent = identity.topic == self.topic
            && identity.seq >= Seq::FIRST
            && self.original_id.as_ref() == Some(&identity.id);
        is_consistent.then_some(identity)
    }
}

impl DeadLetter<'_> {
    pub(crate) fn encode(&self, dead_letters: Topic, id: EventId) -> EncodedEvent {
        let mut event = NewEvent::of(self.payload());
        event.caused_by = self.original.map(|original| original.id.clone()).into_iter().collect();
        event.complete(dead_letters, || id, self.ts).into_encoded()
    }

    fn payload(&self) -> Payload {
        #[derive(Serialize)]
        struct Wire<'a> {
            topic: &'a Topic,
            group: &'a Group,
            original: Option<&'a RawValue>,
            err: &'a str,
            ts: Timestamp,
            attempts: u32,
        }
        let mut json = Vec::new();
        if let Some(original) =
            self.original.filter(|event| event.json_bytes() < MAX_EVENT_BYTES / 2)
        {
            original.write_json(&mut json);
        }
        let wire = Wire {
            topic: self.topic,
            group: self.group,
            original: serde_json::from_slice(&json).ok(),
            err: self.error,
            ts: self.ts,
            attempts: self.attempts,
        };
        let payload = serde_json::to_vec(&wire).expect("a plain value serialises into memory");
        Payload::parse(Bytes::from(payload)).expect("serde_json writes JSON")
    }
}
