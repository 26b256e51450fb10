//! An event as a document.
//!
//! `topic`, `seq`, `id`, `ts` and `key` are what is searched by. `json` is the event as it was
//! committed, what every reader gets; `parts` stands for it where it is large. `bytes` and `latestTs`
//! are sums over the topic up to this event, which rise with `seq`, so that places are found by
//! halving. `expireAt` says when it is over, where its topic has a time to live.

use bytes::{Bytes, BytesMut};
use mongodb::bson::DateTime;
use mongodb::bson::raw::{RawBinaryRef, RawDocument, RawDocumentBuf, cstr};
use mongodb::bson::spec::BinarySubtype;
use prombus_engine::StoredEvent;
use prombus_proto::{EncodedEvent, EventId, Key, Seq, Timestamp};

use crate::layout::numbers::{from_bson, number_in, to_bson};
use crate::retention::ttl::expire_at;

/// A document has at most 16 MiB, and an event may have as many; what is larger than this is stored
/// in parts of this size.
const PART_BYTES: usize = 8 << 20;

/// What an event adds to its topic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sums {
    pub(crate) bytes: i64,
    pub(crate) latest_ts: i64,
}

/// An event's document, the parts of its JSON where it is large, and the sums behind it.
pub(crate) fn encode(
    event: &EncodedEvent,
    seq: Seq,
    before: Sums,
    ttl_ms: Option<i64>,
) -> (RawDocumentBuf, Vec<RawDocumentBuf>, Sums) {
    let mut json = Vec::with_capacity(event.max_json_bytes());
    event.write_json(seq, &mut json);
    let ts = to_bson(event.ts().0);
    let sums = Sums {
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
    document.append(cstr!("bytes"), sums.bytes);
    document.append(cstr!("latestTs"), sums.latest_ts);
    let end = expire_at(sums.latest_ts, ttl_ms);
    if let Some(end) = end {
        document.append(cstr!("expireAt"), end);
    }
    let text = std::str::from_utf8(&json).ok().filter(|text| text.len() <= PART_BYTES);
    let mut parts = Vec::new();
    match text {
        Some(text) => document.append(cstr!("json"), text),
        None => {
            for (number, bytes) in (0..).zip(json.chunks(PART_BYTES)) {
                parts.push(encode_part(topic, seq, number, bytes, end));
            }
            document.append(cstr!("parts"), to_bson(parts.len() as u64));
        }
    }
    (document, parts, sums)
}

fn encode_part(
    topic: &str,
    seq: Seq,
    number: i64,
    bytes: &[u8],
    end: Option<DateTime>,
) -> RawDocumentBuf {
    let mut part = RawDocumentBuf::new();
    part.append(cstr!("topic"), topic);
    part.append(cstr!("seq"), to_bson(seq.0));
    part.append(cstr!("part"), number);
    if let Some(end) = end {
        part.append(cstr!("expireAt"), end);
    }
    part.append(cstr!("json"), RawBinaryRef { subtype: BinarySubtype::Generic, bytes });
    part
}

/// What an event's document says, or what is wrong with it.
pub(crate) fn decode(document: &RawDocument) -> Result<Decoded, String> {
    let text = |name| document.get_str(name).map_err(|error| error.to_string());
    let seq = seq_of(document)?;
    let ts = number_in(document, "ts").ok_or("no ts")?;
    let id = EventId::new(text("id")?).map_err(|error| error.to_string())?;
    let key = match document.get("key") {
        Ok(Some(key)) => {
            let key = key.as_str().ok_or("a key that is no text")?;
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
    Ok(Decoded { event, parts })
}

pub(crate) fn seq_of(document: &RawDocument) -> Result<Seq, String> {
    Ok(Seq(from_bson(number_in(document, "seq").ok_or("no seq")?)))
}

/// An event, still without its JSON where that is in parts.
pub(crate) struct Decoded {
    pub(crate) event: StoredEvent,
    pub(crate) parts: Option<i64>,
}

impl Decoded {
    /// The event with the JSON of all of its `parts`, in order.
    pub(crate) fn with_parts(mut self, parts: &[RawDocumentBuf]) -> Result<StoredEvent, String> {
        if self.parts != Some(to_bson(parts.len() as u64)) {
            return Err(format!("{} of its parts are there", parts.len()));
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
