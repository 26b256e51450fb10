//! An event as it is stored.

use prombus_proto::{EventId, Headers, Key, Seq, Timestamp, Topic};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::{Error, Result};

/// A stored event whose payload is deserialized into a `T`.
///
/// `T` is anything that serde can read: a type of your own, `serde_json::Value` for any JSON, or
/// `Box<serde_json::value::RawValue>` for the bytes as they were published.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Event<T> {
    /// The offset in the topic, starting at 1.
    pub seq: Seq,
    /// The id, unique in the topic.
    pub id: EventId,
    /// When it happened, as set by the publisher, or when the server received it.
    pub ts: Timestamp,
    /// The topic it was published to.
    pub topic: Topic,
    /// The entity it is about, such as a customer or an order.
    pub key: Option<Key>,
    /// Metadata besides the payload.
    #[serde(default)]
    pub headers: Headers,
    /// The deserialized payload.
    pub payload: T,
    /// The events that led to this one.
    #[serde(default)]
    pub caused_by: Vec<EventId>,
    /// Labels set by the publisher.
    #[serde(default)]
    pub tags: Vec<String>,
    /// The session or stream it came from.
    pub sid: Option<String>,
}

impl<T: DeserializeOwned> Event<T> {
    pub(crate) fn decode(json: &[u8]) -> Result<Self> {
        serde_json::from_slice(json).map_err(|error| Error::NotDecoded(error.to_string()))
    }
}

/// Reads the id of an event from its JSON without decoding the payload.
pub(crate) fn id_within(json: &[u8]) -> Result<EventId> {
    #[derive(Deserialize)]
    struct Identified {
        id: EventId,
    }
    let read: serde_json::Result<Identified> = serde_json::from_slice(json);
    read.map(|event| event.id).map_err(|error| Error::NotUnderstood(error.to_string()))
}
