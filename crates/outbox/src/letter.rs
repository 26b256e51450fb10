//! A document of the outbox, and the event that it is.

use mongodb::bson::spec::{BinarySubtype, ElementType};
use mongodb::bson::{Bson, Document};
use prombus_client::{EventId, Key, Outgoing, Topic};
use prombus_proto::ErrorCode;

use crate::order::Lane;
use crate::payload_json::json_of;

/// A document that can be published.
#[derive(Clone, Debug)]
pub(crate) struct Letter {
    /// The document's own.
    pub(crate) id: Bson,
    pub(crate) topic: Topic,
    /// Whose order it keeps.
    pub(crate) lane: Option<Lane>,
    pub(crate) event: Outgoing,
    /// About how much it takes in a frame.
    pub(crate) bytes: usize,
}

/// Why a document is marked as an error: a stable word, and a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reason {
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

/// What an event has around its payload in a frame, at most about that much.
const BYTES_AROUND_A_PAYLOAD: usize = 1024;

impl Letter {
    /// The event that a document is, or why it is none.
    pub(crate) fn read(document: &Document) -> Result<Self, Reason> {
        let id = document.get("_id").cloned().unwrap_or(Bson::Null);
        let event_id = event_id(&id)?;
        let topic = text(document, "topic").map_err(bad(ErrorCode::BadTopic))?;
        let topic = topic.ok_or_else(|| missing(ErrorCode::BadTopic, "topic"))?;
        let topic = Topic::new(topic)
            .map_err(|wrong| Reason::new(ErrorCode::BadTopic, format!("topic: {wrong}")))?;
        let key = text(document, "key").map_err(bad(ErrorCode::BadFrame))?;
        let payload = document.get("payload");
        let payload = payload.ok_or_else(|| missing(ErrorCode::BadFrame, "payload"))?;
        let payload = json_of(payload, "payload")
            .map_err(|wrong| Reason::new(ErrorCode::BadJson, wrong.to_string()))?;
        let mut bytes = payload.get().len() + BYTES_AROUND_A_PAYLOAD;
        let event = Outgoing::new(&payload)
            .map_err(|wrong| Reason::new(ErrorCode::BadJson, wrong.to_string()))?;
        let mut event = event.id(&event_id.to_string()).ts(moment(document)?);
        if let Some(key) = key {
            Key::new(key)
                .map_err(|wrong| Reason::new(ErrorCode::BadFrame, format!("key: {wrong}")))?;
            event = event.key(key);
        }
        for (name, value) in headers(document)? {
            // Some characters take six bytes.
            bytes += 6 * (name.len() + value.len());
            event = event.header(name, value);
        }
        Ok(Self { id, topic, lane: Lane::of(document), event, bytes })
    }
}

impl Reason {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code: code.as_str(), message: message.into() }
    }
}

fn bad(code: ErrorCode) -> impl FnOnce(String) -> Reason {
    move |message| Reason::new(code, message)
}

fn missing(code: ErrorCode, name: &str) -> Reason {
    Reason::new(code, format!("{name}: it is missing"))
}

/// Text, or nothing where the member is null or missing.
fn text<'a>(document: &'a Document, name: &str) -> Result<Option<&'a str>, String> {
    match document.get(name) {
        None | Some(Bson::Null) => Ok(None),
        Some(Bson::String(text)) => Ok(Some(text)),
        Some(other) => Err(format!("{name}: has to be text, not {}", name_of(other))),
    }
}

/// The document's own id as text: as it is, 24 hexadecimal digits, or a UUID in its usual form.
fn event_id(id: &Bson) -> Result<EventId, Reason> {
    let text = match id {
        Bson::String(text) => Some(text.clone()),
        Bson::ObjectId(id) => Some(id.to_hex()),
        Bson::Binary(binary) if binary.subtype == BinarySubtype::Uuid => {
            binary.to_uuid().ok().map(|uuid| uuid.to_string())
        }
        _ => None,
    };
    let text = text.ok_or_else(|| {
        let name = name_of(id);
        let message = format!("_id: has to be text, an ObjectId or a UUID, not {name}");
        Reason::new(ErrorCode::BadFrame, message)
    })?;
    EventId::new(&text).map_err(|wrong| Reason::new(ErrorCode::BadFrame, format!("_id: {wrong}")))
}

/// When it happened, in milliseconds since 1970.
fn moment(document: &Document) -> Result<u64, Reason> {
    let wrong = |what: &str| {
        let message = format!("ts: has to be a date or whole milliseconds since 1970, {what}");
        Reason::new(ErrorCode::BadFrame, message)
    };
    let ms = match document.get("ts") {
        Some(Bson::DateTime(moment)) => moment.timestamp_millis(),
        Some(Bson::Int64(ms)) => *ms,
        Some(Bson::Int32(ms)) => i64::from(*ms),
        // What a program in JavaScript writes.
        Some(Bson::Double(ms)) if ms.fract() == 0.0 && ms.abs() < 1e15 => {
            #[expect(clippy::cast_possible_truncation, reason = "it is whole, and small enough")]
            let whole = *ms as i64;
            whole
        }
        Some(other) => return Err(wrong(&format!("not {}", name_of(other)))),
        None => return Err(wrong("and is missing")),
    };
    u64::try_from(ms).map_err(|_| wrong("and this is before"))
}

fn headers(document: &Document) -> Result<Vec<(&str, &str)>, Reason> {
    let wrong = |message: String| Reason::new(ErrorCode::BadFrame, message);
    let members = match document.get("headers") {
        None | Some(Bson::Null) => return Ok(Vec::new()),
        Some(Bson::Document(members)) => members,
        Some(other) => {
            let name = name_of(other);
            return Err(wrong(format!("headers: has to be an object, not {name}")));
        }
    };
    let most = prombus_proto::limits::MAX_HEADERS;
    if members.len() > most {
        return Err(wrong(format!("headers: at most {most}, and these are {}", members.len())));
    }
    let pairs = members.iter().map(|(name, value)| match value {
        Bson::String(value) => Ok((name.as_str(), value.as_str())),
        other => Err(wrong(format!("headers.{name}: has to be text, not {}", name_of(other)))),
    });
    pairs.collect()
}

fn name_of(value: &Bson) -> String {
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

    fn refused(document: &Document) -> (&'static str, String) {
        let reason = Letter::read(document).unwrap_err();
        (reason.code, reason.message)
    }

    #[test]
    fn ids_are_the_documents_own() {
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
    fn times_are_dates_or_milliseconds() {
        for ts in
            [Bson::Int32(7), Bson::Int64(7), Bson::Double(7.0), DateTime::from_millis(7).into()]
        {
            assert_eq!(moment(&with("ts", ts)).unwrap(), 7);
        }
        for ts in [Bson::Double(0.5), Bson::Int64(-1), "7".into(), Bson::Double(f64::NAN)] {
            assert!(refused(&with("ts", ts)).1.starts_with("ts: has to be a date"));
        }
    }

    #[test]
    fn only_a_topic_and_a_key_of_text_make_a_lane() {
        assert_eq!(Letter::read(&document()).unwrap().lane, None);
        assert_eq!(Letter::read(&with("key", Bson::Null)).unwrap().lane, None);
        let lane = Letter::read(&with("key", "c-7")).unwrap().lane.unwrap();
        assert_eq!((lane.topic.as_str(), lane.key.as_str()), ("orders.created", "c-7"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let cases = [
            (with("topic", "Orders"), "bad_topic", "topic: "),
            (with("topic", 7), "bad_topic", "topic: has to be text, not Int32"),
            (with("key", 7), "bad_frame", "key: has to be text, not Int32"),
            (with("key", ""), "bad_frame", "key: a key must be 1 to 256 bytes long"),
            (with("payload", f64::NAN), "bad_json", "payload: NaN has no JSON form"),
            (with("headers", "x"), "bad_frame", "headers: has to be an object, not String"),
            (with("headers", doc! { "n": 1 }), "bad_frame", "headers.n: has to be text, not Int32"),
        ];
        for (document, code, message) in cases {
            let (found, said) = refused(&document);
            assert_eq!(found, code);
            assert!(said.starts_with(message), "{said}");
        }
        let many: Document = (0..65).map(|n| (n.to_string(), Bson::from("x"))).collect();
        assert!(refused(&with("headers", many)).1.contains("at most 64"));
        let mut nothing = document();
        nothing.remove("payload");
        assert_eq!(refused(&nothing), ("bad_frame", "payload: it is missing".to_owned()));
        assert_eq!(
            Letter::read(&with("payload", Bson::Null)).unwrap().topic.as_str(),
            "orders.created"
        );
    }
}
