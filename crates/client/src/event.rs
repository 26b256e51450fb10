//! An event as it is stored.

use prombus_proto::{EventId, Headers, Key, Seq, Timestamp, Topic};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::{Error, Result};

/// An event as a topic holds it, its payload read as a `T`.
///
/// `T` is anything that serde can read: a type of your own, `serde_json::Value` for any JSON, or
/// `Box<serde_json::value::RawValue>` for the bytes as they were published.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Event<T> {
    /// Its place in the topic, from 1.
    pub seq: Seq,
    /// Its identity in the topic.
    pub id: EventId,
    /// When it happened, as its publisher or the server says.
    pub ts: Timestamp,
    /// Where it is.
    pub topic: Topic,
    /// What it is about.
    pub key: Option<Key>,
    /// Small facts beside the payload.
    #[serde(default)]
    pub headers: Headers,
    /// What happened.
    pub payload: T,
    /// The events that led to it.
    #[serde(default)]
    pub caused_by: Vec<EventId>,
    /// Free labels.
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

/// The identity of an event in its JSON, whatever its payload is.
pub(crate) fn id_within(json: &[u8]) -> Result<EventId> {
    #[derive(Deserialize)]
    struct Identified {
        id: EventId,
    }
    let read: serde_json::Result<Identified> = serde_json::from_slice(json);
    read.map(|event| event.id).map_err(|error| Error::NotUnderstood(error.to_string()))
}
