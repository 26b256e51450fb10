//! Parses a document of the outbox as an event.

use mongodb::bson::spec::{BinarySubtype, ElementType};
use mongodb::bson::{Bson, Document};
use prombus_client::{EventId, Key, Outgoing, Topic};
use prombus_proto::ErrorCode;

use super::json::json_of;
use crate::order::OrderingKey;

/// An event to be published.
#[derive(Clone, Debug)]
pub(crate) struct OutboxEvent {
    /// The `_id` of the document.
    pub(crate) id: Bson,
    pub(crate) topic: Topic,
    pub(crate) ordering_key: Option<OrderingKey>,
    pub(crate) event: Outgoing,
    /// Its estimated size in a frame.
    pub(crate) bytes: usize,
}

/// Why a document is marked as an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rejection {
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

/// A rough upper bound of what an event has besides its payload in a frame.
const OVERHEAD_BYTES: usize = 1024;

impl OutboxEvent {
    pub(crate) fn parse(document: &Document) -> Result<Self, Rejection> {
        let id = document.get("_id").cloned().unwrap_or(Bson::Null);
        let event_id = event_id(&id)?;
        let topic = text(document, "topic").map_err(bad(ErrorCode::BadTopic))?;
        let topic = topic.ok_or_else(|| missing(ErrorCode::BadTopic, "topic"))?;
        let topic = Topic::new(topic)
            .map_err(|error| Rejection::new(ErrorCode::BadTopic, format!("topic: {error}")))?;
        let key = text(document, "key").map_err(bad(ErrorCode::BadFrame))?;
        let payload = document.get("payload");
        let payload = payload.ok_or_else(|| missing(ErrorCode::BadFrame, "payload"))?;
        let payload = json_of(payload, "payload")
            .map_err(|error| Rejection::new(ErrorCode::BadJson, error.to_string()))?;
        let mut bytes = payload.get().len() + OVERHEAD_BYTES;
        let event = Outgoing::new(&payload)
            .map_err(|error| Rejection::new(ErrorCode::BadJson, error.to_string()))?;
        let mut event = event.id(&event_id.to_string()).ts(timestamp(document)?);
        if let Some(key) = key {
            Key::new(key)
                .map_err(|error| Rejection::new(ErrorCode::BadFrame, format!("key: {error}")))?;
            event = event.key(key);
        }
        for (name, value) in headers(document)? {
            // JSON escapes of a character take up to six bytes.
            bytes += 6 * (name.len() + value.len());
            event = event.header(name, value);
        }
        Ok(Self { id, topic, ordering_key: OrderingKey::of(document), event, bytes })
    }
}

impl Rejection {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code: code.as_str(), message: message.into() }
    }
}

fn bad(code: ErrorCode) -> impl FnOnce(String) -> Rejection {
    move |message| Rejection::new(code, message)
}

fn missing(code: ErrorCode, name: &str) -> Rejection {
    Rejection::new(code, format!("{name}: is missing"))
}

/// Returns a string field, or `None` if it is null or missing.
fn text<'a>(document: &'a Document, name: &str) -> Result<Option<&'a str>, String> {
    match document.get(name) {
        None | Some(Bson::Null) => Ok(None),
        Some(Bson::String(text)) => Ok(Some(text)),
        Some(other) => Err(format!("{name}: must be a string, not {}", type_name(other))),
    }
}

/// Returns the `_id` as the id of the event: a string as it is, an ObjectId as 24 hexadecimal
/// digits, a UUID in its usual form.
fn event_id(id: &Bson) -> Result<EventId, Rejection> {
    let text = match id {
        Bson::String(text) => Some(text.clone()),
        Bson::ObjectId(id) => Some(id.to_hex()),
        Bson::Binary(binary) if binary.subtype == BinarySubtype::Uuid => {
            binary.to_uuid().ok().map(|uuid| uuid.to_string())
        }
        _ => None,
    };
    let text = text.ok_or_else(|| {
        let name = type_name(id);
        let message = format!("_id: must be a string, an ObjectId or a UUID, not {name}");
        Rejection::new(ErrorCode::BadFrame, message)
    })?;
    EventId::new(&text)
        .map_err(|error| Rejection::new(ErrorCode::BadFrame, format!("_id: {error}")))
}

/// Returns the timestamp in milliseconds since 1970.
fn timestamp(document: &Document) -> Result<u64, Rejection> {
    let invalid = |what: &str| {
        let message = format!("ts: must be a date or whole milliseconds since 1970, {what}");
        Rejection::new(ErrorCode::BadFrame, message)
    };
    let ms = match document.get("ts") {
        Some(Bson::DateTime(date)) => date.timestamp_millis(),
        Some(Bson::Int64(ms)) => *ms,
        Some(Bson::Int32(ms)) => i64::from(*ms),
        // JavaScript programs write numbers as doubles.
        Some(Bson::Double(ms)) if ms.fract() == 0.0 && ms.abs() < 1e15 => {
            #[expect(clippy::cast_possible_truncation, reason = "it is whole, and small enough")]
            let whole = *ms as i64;
            whole
        }
        Some(other) => return Err(invalid(&format!("not {}", type_name(other)))),
        None => return Err(invalid("but is missing")),
    };
    u64::try_from(ms).map_err(|_| invalid("but is before"))
}

fn headers(document: &Document) -> Result<Vec<(&str, &str)>, Rejection> {
    let invalid = |message: String| Rejection::new(ErrorCode::BadFrame, message);
    let members = match document.get("headers") {
        None | Some(Bson::Null) => return Ok(Vec::new()),
        Some(Bson::Document(members)) => members,
        Some(other) => {
            let name = type_name(other);
            return Err(invalid(format!("headers: must be an object, not {name}")));
        }
    };
    let max = prombus_proto::limits::MAX_HEADERS;
    if members.len() > max {
        return Err(invalid(format!("headers: at most {max}, not {}", members.len())));
    }
    let pairs = members.iter().map(|(name, value)| match value {
        Bson::String(value) => Ok((name.as_str(), value.as_str())),
        other => {
            Err(invalid(format!("headers.{name}: must be a string, not {}", type_name(other))))
        }
    });
    pairs.collect()
}

fn type_name(value: &Bson) -> String {
    match value.element_type() {
        ElementType::EmbeddedDocument => "an object".to_owned(),
        ElementType::Null => "null".to_owned(),
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use mongodb::bson::oid::ObjectId;
    use mongodb::bson::{DateTime, Uuid, doc};

    use super::*;

    fn document() -> Document {
        doc! { "_id": "o-1", "topic": "orders.created", "payload": { "n": 1 }, "ts": 7_i64 }
    }

    fn with(name: &str, value: impl Into<Bson>) -> Document {
        let mut document = document();
        document.insert(name, value.into());
        document
    }

    fn rejected(document: &Document) -> (&'static str, String) {
        let reason = OutboxEvent::parse(document).unwrap_err();
        (reason.code, reason.message)
    }

    #[test]
    fn the_document_id_is_the_event_id() {
        assert_eq!(event_id(&"o-1".into()).unwrap().to_string(), "o-1");
        let id = ObjectId::parse_str("65f0c0ffee65f0c0ffee65f0").unwrap();
        assert_eq!(event_id(&id.into()).unwrap().to_string(), "65f0c0ffee65f0c0ffee65f0");
        let uuid = "0190f5e4-8d4b-7c3a-9f2e-0123456789ab";
        let id = event_id(&Uuid::parse_str(uuid).unwrap().into()).unwrap();
        assert!(id.as_uuid().is_some() && id.to_string() == uuid);
        for wrong in [Bson::Int32(1), Bson::Null, "".into(), "a\nb".into()] {
            assert_eq!(event_id(&wrong).unwrap_err().code, "bad_frame", "{wrong}");
        }
    }

    #[test]
    fn timestamps_are_dates_or_milliseconds() {
        for ts in
            [Bson::Int32(7), Bson::Int64(7), Bson::Double(7.0), DateTime::from_millis(7).into()]
        {
            assert_eq!(timestamp(&with("ts", ts)).unwrap(), 7);
        }
        for ts in [Bson::Double(0.5), Bson::Int64(-1), "7".into(), Bson::Double(f64::NAN)] {
            assert!(rejected(&with("ts", ts)).1.starts_with("ts: must be a date"));
        }
    }

    #[test]
    fn the_ordering_key_is_the_topic_and_the_key() {
        assert_eq!(OutboxEvent::parse(&document()).unwrap().ordering_key, None);
        assert_eq!(OutboxEvent::parse(&with("key", Bson::Null)).unwrap().ordering_key, None);
        let ordering_key = OutboxEvent::parse(&with("key", "c-7")).unwrap().ordering_key.unwrap();
        assert_eq!(
            (ordering_key.topic.as_str(), ordering_key.key.as_str()),
            ("orders.created", "c-7")
        );
    }

    #[test]
    fn errors_name_the_field() {
        let cases = [
            (with("topic", "Orders"), "bad_topic", "topic: "),
            (with("topic", 7), "bad_topic", "topic: must be a string, not Int32"),
            (with("key", 7), "bad_frame", "key: must be a string, not Int32"),
            (with("key", ""), "bad_frame", "key: a key must be 1 to 256 bytes long"),
            (with("payload", f64::NAN), "bad_json", "payload: NaN has no JSON representation"),
            (with("headers", "x"), "bad_frame", "headers: must be an object, not String"),
            (
                with("headers", doc! { "n": 1 }),
                "bad_frame",
                "headers.n: must be a string, not Int32",
            ),
        ];
        for (document, code, message) in cases {
            let (found, text) = rejected(&document);
            assert_eq!(found, code);
            assert!(text.starts_with(message), "{text}");
        }
        let many: Document = (0..65).map(|n| (n.to_string(), Bson::from("x"))).collect();
        assert!(rejected(&with("headers", many)).1.contains("at most 64"));
        let mut nothing = document();
        nothing.remove("payload");
        assert_eq!(rejected(&nothing), ("bad_frame", "payload: is missing".to_owned()));
        assert_eq!(
            OutboxEvent::parse(&with("payload", Bson::Null)).unwrap().topic.as_str(),
            "orders.created"
        );
    }
}
