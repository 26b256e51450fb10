//! The event, and the JSON it becomes once.

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

/// What somebody said happened. The topic's log gives it its [`Seq`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its identity within the topic.
    pub id: EventId,
    /// When it happened, as the publisher or the bus says.
    pub ts: Timestamp,
    /// Where it belongs.
    pub topic: Topic,
    /// What it is about.
    pub key: Option<Key>,
    /// Small facts beside the payload.
    pub headers: Headers,
    /// What happened.
    pub payload: Payload,
    /// The events that led to it.
    pub caused_by: Vec<EventId>,
    /// Free labels.
    pub tags: Vec<String>,
    /// The session or stream it came from.
    pub sid: Option<String>,
}

/// Names and values beside a payload, in the order they came; of one name the last counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, String)>);

/// Why JSON is no event.
#[derive(Debug, Error)]
#[error("not an event: {0}")]
pub struct EventError(#[from] serde_json::Error);

/// An event as it will be stored: its JSON is made, only the [`Seq`] is missing.
///
/// Making it costs the publisher's thread; the log's own thread then only copies. Clones share
/// the JSON.
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
    /// Makes the event's JSON.
    #[must_use]
    pub fn encode(&self) -> EncodedEvent {
        self.clone().into_encoded()
    }

    /// As [`Event::encode`], for who does not need the event any more.
    #[must_use]
    pub fn into_encoded(self) -> EncodedEvent {
        let json_after_seq = of_its_own_size(|json| self.append_members(json));
        let Event { topic, id, ts, key, .. } = self;
        EncodedEvent { topic, id, ts, key, json_after_seq }
    }

    /// Appends all members but `seq`, and the end of the object.
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

    /// Reads the JSON of a stored event back.
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

/// What `write` appends, in one allocation of exactly its size, the count of those who share it
/// included.
fn of_its_own_size(write: impl FnOnce(&mut Vec<u8>)) -> Arc<[u8]> {
    const KEPT_BYTES: usize = 64 << 10;
    thread_local! {
        static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.clear();
        write(scratch);
        let bytes = Arc::from(scratch.as_slice());
        scratch.shrink_to(KEPT_BYTES);
        bytes
    })
}

/// Appends `,"name":value`. The leading comma is right for every member: `seq` is the first.
fn append_member<T: Serialize + ?Sized>(json: &mut Vec<u8>, name: &str, value: &T) {
    write::member(json, name);
    write::value(json, value);
}

impl EncodedEvent {
    /// The topic it goes to.
    #[must_use]
    pub const fn topic(&self) -> &Topic {
        &self.topic
    }

    /// Its identity.
    #[must_use]
    pub const fn id(&self) -> &EventId {
        &self.id
    }

    /// Its time.
    #[must_use]
    pub const fn ts(&self) -> Timestamp {
        self.ts
    }

    /// Its key.
    #[must_use]
    pub const fn key(&self) -> Option<&Key> {
        self.key.as_ref()
    }

    /// The most bytes its JSON can have, whatever its `seq`.
    #[must_use]
    pub fn max_json_bytes(&self) -> usize {
        JSON_BEFORE_SEQ.len() + MAX_SEQ_DIGITS + self.json_after_seq.len()
    }

    /// How many bytes its JSON has at the place `seq`.
    #[must_use]
    pub fn json_bytes(&self, seq: Seq) -> usize {
        let digits = seq.0.checked_ilog10().unwrap_or(0) as usize + 1;
        JSON_BEFORE_SEQ.len() + digits + self.json_after_seq.len()
    }

    /// The end of its JSON, all that follows the `seq`.
    #[must_use]
    pub fn json_after_seq(&self) -> &[u8] {
        &self.json_after_seq
    }

    /// Appends the whole JSON to `out`: these bytes are what every reader gets.
    pub fn write_json(&self, seq: Seq, out: &mut impl BufMut) {
        out.put_slice(JSON_BEFORE_SEQ);
        out.put_slice(itoa::Buffer::new().format(seq.0).as_bytes());
        out.put_slice(&self.json_after_seq);
    }
}

impl Headers {
    /// None.
    pub const NONE: Headers = Headers(Vec::new());

    /// The headers, if they are not too many.
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

    /// The value of `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// All pairs, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Whether there are none.
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
                write!(f, "an object of at most {MAX_HEADERS} headers, each a string")
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
    fn what_is_absent_is_not_written() {
        assert_eq!(
            json_of(&plain(), 7),
            r#"{"seq":7,"id":"0190f5e4-8d4b-7c3a-9f2e-0123456789ab","ts":1700000000000,"topic":"heartbeat.received","payload":{"pid": 1}}"#
        );
    }

    #[test]
    fn what_is_there_comes_in_a_fixed_order() {
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
    fn headers_keep_the_last_of_a_name_and_have_a_limit() {
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
        fn encode_then_decode_is_the_same_event(
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
