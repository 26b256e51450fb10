//! Dead letters: events that a group gave up on.

use bytes::Bytes;
use prombus_proto::limits::MAX_EVENT_BYTES;
use prombus_proto::{
    EncodedEvent, EventId, Group, InvalidName, NewEvent, Payload, Timestamp, Topic,
};
use serde::Serialize;
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
