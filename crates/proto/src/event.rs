//! The event and its stored JSON.

use std::cell::RefCell;
use std::sync::Arc;

use bytes::BufMut;
use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use thiserror::Error;

use crate::frame::write;
use crate::limits::MAX_HEADERS;
use crate::{EventId, Key, Payload, Seq, Timestamp, Topic};

/// A published event. It gets its [`Seq`] when it is appended to the topic's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Unique within the topic: a second event with the same id is a duplicate.
    pub id: EventId,
    /// When it happened, according to the publisher, or when the bus accepted it.
    pub ts: Timestamp,
    /// The topic it is published to.
    pub topic: Topic,
    /// The entity it is about; see [`Key`].
    pub key: Option<Key>,
    /// Small metadata beside the payload.
    pub headers: Headers,
    /// The event's data.
    pub payload: Payload,
    /// The ids of the events that caused this one.
    pub caused_by: Vec<EventId>,
    /// Free-form labels.
    pub tags: Vec<String>,
    /// The id of the session or stream it came from.
    pub sid: Option<String>,
}

/// Names and values beside a payload, in the publisher's order. Of a repeated name, the last value
/// wins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, String)>);

/// JSON that is not an event.
#[derive(Debug, Error)]
#[error("not an event: {0}")]
pub struct EventError(#[from] serde_json::Error);

/// An event serialised for storage, complete except for its [`Seq`].
///
/// The publisher's thread does the serialisation, so that the log's thread only copies bytes. Clones
/// share the JSON.
#[derive(Clone, Debug)]
pub struct EncodedEvent {
    topic: Topic,
    id: EventId,
    ts: Timestamp,
    key: Option<Key>,
    json_after_seq: Arc<[u8]>,
}

const JSON_BEFORE_SEQ: &[u8] = b"{\"seq\":";
const MAX_SEQ_DIGITS: usize = 20;

impl Event {
    /// Serialises the event.
    #[must_use]
    pub fn encode(&self) -> EncodedEvent {
        self.clone().into_encoded()
    }

    /// Like [`Event::encode`], but consumes the event and saves a clone.
    #[must_use]
    pub fn into_encoded(self) -> EncodedEvent {
        let json_after_seq = exact_size_arc(|json| self.append_members(json));
        let Event { topic, id, ts, key, .. } = self;
        EncodedEvent { topic, id, ts, key, json_after_seq }
    }

    /// Appends every member except `seq`, and the closing brace.
    fn append_members(&self, json: &mut Vec<u8>) {
        write::known_member!(json, "id");
        write::event_id(json, &self.id);
        write::known_member!(json, "ts");
        write::number(json, self.ts.0);
        write::known_member!(json, "topic");
        write::name(json, self.topic.as_str());
        if let Some(key) = &self.key {
            append_member(json, "key", key);
        }
        if !self.headers.is_empty() {
            append_member(json, "headers", &self.headers);
        }
        write::known_member!(json, "payload");
        json.extend_from_slice(self.payload.as_bytes());
        if !self.caused_by.is_empty() {
            append_member(json, "caused_by", &self.caused_by);
        }
        if !self.tags.is_empty() {
            append_member(json, "tags", &self.tags);
        }
        if let Some(sid) = &self.sid {
            append_member(json, "sid", sid);
        }
        json.push(b'}');
    }

    /// Parses the JSON of a stored event.
    ///
    /// # Errors
    ///
    /// [`EventError`] if `json` is not the JSON of an event, or violates a limit.
    pub fn decode(json: &[u8]) -> Result<(Seq, Event), EventError> {
        #[derive(Deserialize)]
        struct Wire<'a> {
            seq: Seq,
            id: EventId,
            ts: Timestamp,
            topic: Topic,
            key: Option<Key>,
            #[serde(default)]
            headers: Headers,
            #[serde(borrow)]
            payload: &'a RawValue,
            #[serde(default)]
            caused_by: Vec<EventId>,
            #[serde(default)]
            tags: Vec<String>,
            sid: Option<String>,
        }
        let wire: Wire<'_> = serde_json::from_slice(json)?;
        let event = Event {
            id: wire.id,
            ts: wire.ts,
            topic: wire.topic,
            key: wire.key,
            headers: wire.headers,
            payload: Payload::from_raw(wire.payload),
            caused_by: wire.caused_by,
            tags: wire.tags,
            sid: wire.sid,
        };
        Ok((wire.seq, event))
    }
}

/// Returns what `write` appends, in one allocation of exactly the right size.
fn exact_size_arc(write: impl FnOnce(&mut Vec<u8>)) -> Arc<[u8]> {
    const MAX_SCRATCH_BYTES: usize = 64 << 10;
    thread_local! {
        static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.clear();
        write(scratch);
        let bytes = Arc::from(scratch.as_slice());
        scratch.shrink_to(MAX_SCRATCH_BYTES);
        bytes
    })
}

/// Appends `,"name":value`. The leading comma is always right because `seq` comes first.
fn append_member<T: Serialize + ?Sized>(json: &mut Vec<u8>, name: &str, value: &T) {
    write::member(json, name);
    write::value(json, value);
}

impl EncodedEvent {
    /// Returns the topic that the event is published to.
    #[must_use]
    pub const fn topic(&self) -> &Topic {
        &self.topic
    }

    /// Returns the event's id.
    #[must_use]
    pub const fn id(&self) -> &EventId {
        &self.id
    }

    /// Returns the event's timestamp.
    #[must_use]
    pub const fn ts(&self) -> Timestamp {
        self.ts
    }

    /// Returns the event's key, if it has one.
    #[must_use]
    pub const fn key(&self) -> Option<&Key> {
        self.key.as_ref()
    }

    /// Returns an upper bound of the JSON's size in bytes, for any `seq`.
    #[must_use]
    pub fn max_json_bytes(&self) -> usize {
        JSON_BEFORE_SEQ.len() + MAX_SEQ_DIGITS + self.json_after_seq.len()
    }

    /// Returns the exact size of the JSON in bytes when stored at `seq`.
    #[must_use]
    pub fn json_bytes(&self, seq: Seq) -> usize {
        let digits = seq.0.checked_ilog10().unwrap_or(0) as usize + 1;
        JSON_BEFORE_SEQ.len() + digits + self.json_after_seq.len()
    }

    /// Returns the part of the JSON that follows the `seq`.
    #[must_use]
    pub fn json_after_seq(&self) -> &[u8] {
        &self.json_after_seq
    }

    /// Appends the complete JSON to `out`. Every reader gets exactly these bytes.
    pub fn write_json(&self, seq: Seq, out: &mut impl BufMut) {
        out.put_slice(JSON_BEFORE_SEQ);
        out.put_slice(itoa::Buffer::new().format(seq.0).as_bytes());
        out.put_slice(&self.json_after_seq);
    }
}

impl Headers {
    /// No headers.
    pub const NONE: Headers = Headers(Vec::new());

    /// Collects `pairs`. Returns `None` if they have more than [`MAX_HEADERS`] distinct names.
    #[must_use]
    pub fn new(pairs: impl IntoIterator<Item = (String, String)>) -> Option<Self> {
        let mut headers = Self::default();
        for (name, value) in pairs {
            headers.set(name, value);
        }
        (headers.0.len() <= MAX_HEADERS).then_some(headers)
    }

    fn set(&mut self, name: String, value: String) {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some(pair) => pair.1 = value,
            None => self.0.push((name, value)),
        }
    }

    /// Returns the value of `name`, which is case-sensitive.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Iterates over the names and values, in the publisher's order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns `true` if there are no headers.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for Headers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Headers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Headers;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "an object with at most {MAX_HEADERS} members, each a string")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Headers, A::Error> {
                let mut headers = Headers::default();
                while let Some((name, value)) = map.next_entry()? {
                    headers.set(name, value);
                    if headers.0.len() > MAX_HEADERS {
                        return Err(serde::de::Error::invalid_length(headers.0.len(), &self));
                    }
                }
                Ok(headers)
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;

    fn json_of(event: &Event, seq: u64) -> String {
        let encoded = event.encode();
        let mut json = Vec::new();
        encoded.write_json(Seq(seq), &mut json);
        assert!(json.len() <= encoded.max_json_bytes());
        String::from_utf8(json).unwrap()
    }

    fn plain() -> Event {
        Event {
            id: EventId::new("0190f5e4-8d4b-7c3a-9f2e-0123456789ab").unwrap(),
            ts: Timestamp(1_700_000_000_000),
            topic: Topic::new("heartbeat.received").unwrap(),
            key: None,
            headers: Headers::default(),
            payload: Payload::parse(Bytes::from_static(b"{\"pid\": 1}")).unwrap(),
            caused_by: vec![],
            tags: vec![],
            sid: None,
        }
    }

    #[test]
    fn omits_absent_members() {
        assert_eq!(
            json_of(&plain(), 7),
            r#"{"seq":7,"id":"0190f5e4-8d4b-7c3a-9f2e-0123456789ab","ts":1700000000000,"topic":"heartbeat.received","payload":{"pid": 1}}"#
        );
    }

    #[test]
    fn writes_members_in_a_fixed_order() {
        let event = Event {
            key: Some(Key::new("k\"1").unwrap()),
            headers: Headers::new([("b".into(), "2".into()), ("a".into(), "é\n".into())]).unwrap(),
            caused_by: vec![EventId::new("order-1").unwrap()],
            tags: vec!["t".into()],
            sid: Some("s".into()),
            ..plain()
        };
        assert_eq!(
            json_of(&event, u64::MAX),
            "{\"seq\":18446744073709551615,\"id\":\"0190f5e4-8d4b-7c3a-9f2e-0123456789ab\",\
             \"ts\":1700000000000,\"topic\":\"heartbeat.received\",\"key\":\"k\\\"1\",\
             \"headers\":{\"b\":\"2\",\"a\":\"é\\n\"},\"payload\":{\"pid\": 1},\
             \"caused_by\":[\"order-1\"],\"tags\":[\"t\"],\"sid\":\"s\"}"
        );
    }

    #[test]
    fn headers_keep_the_last_value_of_a_name_and_are_limited() {
        let twice: Headers = serde_json::from_str(r#"{"a":"1","b":"2","a":"3"}"#).unwrap();
        assert_eq!(twice.iter().collect::<Vec<_>>(), [("a", "3"), ("b", "2")]);
        assert_eq!(twice.get("b"), Some("2"));
        let many = |n: usize| (0..n).map(|i| (format!("h{i}"), String::new()));
        assert!(Headers::new(many(MAX_HEADERS)).is_some());
        assert!(Headers::new(many(MAX_HEADERS + 1)).is_none());
        let json = serde_json::to_string(&Headers(many(MAX_HEADERS + 1).collect())).unwrap();
        assert!(serde_json::from_str::<Headers>(&json).is_err());
    }

    proptest! {
        #[test]
        fn decoding_an_encoded_event_returns_the_same_event(
            id in "\\PC{1,40}", ts in any::<u64>(), key in proptest::option::of("\\PC{1,40}"),
            header in proptest::option::of(("\\PC{0,10}", ".{0,10}")), text in ".{0,80}",
            tags in proptest::collection::vec(".{0,5}", 0..3), seq in any::<u64>(),
        ) {
            let event = Event {
                id: EventId::new(&id).unwrap(),
                ts: Timestamp(ts),
                key: key.map(|key| Key::new(&key).unwrap()),
                headers: Headers::new(header).unwrap(),
                payload: Payload::parse(serde_json::to_vec(&text).unwrap().into()).unwrap(),
                tags,
                ..plain()
            };
            let json = json_of(&event, seq);
            prop_assert!(!json.contains('\n'));
            prop_assert_eq!(Event::decode(json.as_bytes()).unwrap(), (Seq(seq), event));
        }
    }
}
