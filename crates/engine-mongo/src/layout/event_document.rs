//! The document of an event.
//!
//! Searches use `topic`, `seq`, `id`, `ts` and `key`. `json` is the event as it was committed,
//! which is what every reader gets; a large event has `parts` instead, the number of its documents
//! in `event_parts`. `bytes`, `latestTs` and `storedAt` are totals over the topic up to this event;
//! they rise with `seq`, so positions are found by bisection. `storedAt` is when the event was
//! stored, or when an event before it was, if that is later; documents of older programs lack it.
//! `expireAt` is set if the topic has a time to live.

use bytes::{Bytes, BytesMut};
use mongodb::bson::DateTime;
use mongodb::bson::raw::{RawBinaryRef, RawDocument, RawDocumentBuf, cstr};
use mongodb::bson::spec::BinarySubtype;
use prombus_engine::StoredEvent;
use prombus_proto::{EncodedEvent, EventId, Key, Seq, Timestamp};

use crate::layout::numbers::{from_bson, number_in, to_bson};

/// A document is limited to 16 MiB, and an event may be as large. JSON longer than this is split
/// into parts of this size.
const PART_BYTES: usize = 8 << 20;

/// Totals over a topic, up to and including an event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Totals {
    pub(crate) bytes: i64,
    pub(crate) latest_ts: i64,
}

/// When an event is stored, and when it expires.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lifetime {
    pub(crate) stored_at: i64,
    pub(crate) expire_at: Option<DateTime>,
}

/// Returns the event's document, its parts if it is large, and the totals after it.
pub(crate) fn encode(
    event: &EncodedEvent,
    seq: Seq,
    before: Totals,
    Lifetime { stored_at, expire_at }: Lifetime,
) -> (RawDocumentBuf, Vec<RawDocumentBuf>, Totals) {
    let mut json = Vec::with_capacity(event.max_json_bytes());
    event.write_json(seq, &mut json);
    let ts = to_bson(event.ts().0);
    let totals = Totals {
        bytes: before.bytes.saturating_add(to_bson(json.len() as u64)),
        latest_ts: before.latest_ts.max(ts),
    };
    let topic = event.topic().as_str();
    let mut document = RawDocumentBuf::new();
    document.append(cstr!("topic"), topic);
    document.append(cstr!("seq"), to_bson(seq.0));
    document.append(cstr!("id"), event.id().to_string());
    document.append(cstr!("ts"), ts);
    if let Some(key) = event.key() {
        document.append(cstr!("key"), key.as_str());
    }
    document.append(cstr!("bytes"), totals.bytes);
    document.append(cstr!("latestTs"), totals.latest_ts);
    document.append(cstr!("storedAt"), stored_at);
    if let Some(expire_at) = expire_at {
        document.append(cstr!("expireAt"), expire_at);
    }
    let text = std::str::from_utf8(&json).ok().filter(|text| text.len() <= PART_BYTES);
    let mut parts = Vec::new();
    match text {
        Some(text) => document.append(cstr!("json"), text),
        None => {
            for (number, bytes) in (0..).zip(json.chunks(PART_BYTES)) {
                parts.push(encode_part(topic, seq, number, bytes, expire_at));
            }
            document.append(cstr!("parts"), to_bson(parts.len() as u64));
        }
    }
    (document, parts, totals)
}

fn encode_part(
    topic: &str,
    seq: Seq,
    number: i64,
    bytes: &[u8],
    expire_at: Option<DateTime>,
) -> RawDocumentBuf {
    let mut part = RawDocumentBuf::new();
    part.append(cstr!("topic"), topic);
    part.append(cstr!("seq"), to_bson(seq.0));
    part.append(cstr!("part"), number);
    if let Some(expire_at) = expire_at {
        part.append(cstr!("expireAt"), expire_at);
    }
    part.append(cstr!("json"), RawBinaryRef { subtype: BinarySubtype::Generic, bytes });
    part
}

/// Decodes an event's document.
///
/// # Errors
///
/// What is wrong with the document.
pub(crate) fn decode(document: &RawDocument) -> Result<DecodedEvent, String> {
    let text = |name| document.get_str(name).map_err(|error| error.to_string());
    let seq = seq_of(document)?;
    let ts = number_in(document, "ts").ok_or("no ts")?;
    let id = EventId::new(text("id")?).map_err(|error| error.to_string())?;
    let key = match document.get("key") {
        Ok(Some(key)) => {
            let key = key.as_str().ok_or("the key is not a string")?;
            Some(Key::new(key).map_err(|error| error.to_string())?)
        }
        _ => None,
    };
    let parts = number_in(document, "parts");
    let json = match parts {
        Some(_) => Bytes::new(),
        None => Bytes::copy_from_slice(text("json")?.as_bytes()),
    };
    let event = StoredEvent { seq, ts: Timestamp(from_bson(ts)), id, key, json };
    Ok(DecodedEvent { event, parts })
}

pub(crate) fn seq_of(document: &RawDocument) -> Result<Seq, String> {
    Ok(Seq(from_bson(number_in(document, "seq").ok_or("no seq")?)))
}

/// A decoded event. Its JSON is empty if it is stored in parts.
pub(crate) struct DecodedEvent {
    pub(crate) event: StoredEvent,
    pub(crate) parts: Option<i64>,
}

impl DecodedEvent {
    /// Completes the event with the JSON of its `parts`, which are in order.
    pub(crate) fn with_parts(mut self, parts: &[RawDocumentBuf]) -> Result<StoredEvent, String> {
        if self.parts != Some(to_bson(parts.len() as u64)) {
            return Err(format!("found {} of {} parts", parts.len(), self.parts.unwrap_or(0)));
        }
        let mut json = BytesMut::new();
        for part in parts {
            let bytes = part.get_binary("json").map_err(|error| error.to_string())?;
            json.extend_from_slice(bytes.bytes);
        }
        self.event.json = json.freeze();
        Ok(self.event)
    }
}
