//! An entry of the keyed state as a document.

use bytes::Bytes;
use mongodb::bson::raw::{RawBsonRef, RawDocument};
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, DateTime, Document, doc};
use prombus_engine::{StateEntry, StateKind, Version};
use prombus_proto::Timestamp;
use serde_json::Value;

use crate::layout::numbers::{from_bson, number_in, to_bson};
use crate::state::location::{StateCollection, StateLocation};

pub(crate) fn encode(location: &StateLocation, entry: &StateEntry) -> Document {
    let value = Binary { subtype: BinarySubtype::Generic, bytes: entry.value.to_vec() };
    let mut document =
        doc! { "_id": &location.id, "value": value, "version": to_bson(entry.version.0) };
    if let Some(expires_at) = entry.expires_at {
        document.insert("expireAt", to_date(expires_at));
        // A date cannot represent it, so the exact number is stored as text.
        if i64::try_from(expires_at.0).is_err() {
            document.insert("expires", expires_at.0.to_string());
        }
    }
    if location.collection.has_key_field() {
        document.insert("key", String::from_utf8_lossy(entry.key.as_bytes()).into_owned());
    }
    if let Some(kind) = location.kind {
        document.extend(readable_fields(kind, &entry.value));
    }
    document
}

/// The members of the JSON `value` that `kind` wants readable as fields of the document.
fn readable_fields(kind: &StateKind, value: &[u8]) -> Document {
    let mut fields = Document::new();
    if kind.fields.is_empty() {
        return fields;
    }
    let Ok(Value::Object(members)) = serde_json::from_slice(value) else { return fields };
    for (member, field) in kind.fields {
        let readable = match members.get(*member) {
            Some(Value::String(text)) => Some(Bson::from(text)),
            Some(Value::Number(number)) => number.as_u64().map(|number| to_bson(number).into()),
            _ => None,
        };
        fields.extend(readable.map(|readable| ((*field).to_owned(), readable)));
    }
    fields
}

/// Returns the entry in `document`, or `None` if another program wrote something else there.
pub(crate) fn decode(collection: StateCollection, document: &RawDocument) -> Option<StateEntry> {
    let key = collection.key_of(document.get_str(collection.order_field()).ok()?)?;
    let value = match (document.get_binary("value"), collection) {
        (Ok(binary), _) => Bytes::copy_from_slice(binary.bytes),
        (Err(_), StateCollection::OfKind { kind, .. }) => Bytes::from_static(kind.marker?),
        (Err(_), StateCollection::Shared) => return None,
    };
    let version = Version(number_in(document, "version").map_or(0, from_bson));
    let expires_at = match (document.get_str("expires"), document.get("expireAt")) {
        (Ok(exact), _) => exact.parse().ok().map(Timestamp),
        (_, Ok(Some(RawBsonRef::DateTime(date)))) => {
            Some(Timestamp(from_bson(date.timestamp_millis())))
        }
        _ => None,
    };
    Some(StateEntry { key, value, version, expires_at })
}

/// A filter for entries that have not expired at `now`. Expired ones may not have been removed yet.
pub(crate) fn not_expired(now: Timestamp) -> Document {
    doc! { "$or": [{ "expireAt": { "$exists": false } }, { "expireAt": { "$gt": to_date(now) } }] }
}

pub(crate) fn to_date(time: Timestamp) -> DateTime {
    DateTime::from_millis(to_bson(time.0))
}

#[cfg(test)]
mod tests {
    use mongodb::bson::RawDocumentBuf;
    use prombus_engine::StateKey;

    use super::*;
    use crate::state::location::StateLayout;

    /// The kinds that the bus stores; what follows pins their documents.
    const LAYOUT: StateLayout = StateLayout::new(prombus_bus::STATE_KINDS);

    fn entry(key: &str, value: &'static [u8], expires_at: Option<u64>) -> StateEntry {
        StateEntry {
            key: StateKey::new(key.to_owned()).unwrap(),
            value: Bytes::from_static(value),
            version: Version(7),
            expires_at: expires_at.map(Timestamp),
        }
    }

    fn encoded(entry: &StateEntry) -> Document {
        encode(&LAYOUT.locate(&entry.key), entry)
    }

    #[test]
    fn entries_round_trip() {
        for entry in [
            entry("k", b"\x00\xff", None),
            entry("k", b"", Some(0)),
            entry("cursor/a::b/0", b"{\"v\":1}", Some(u64::MAX)),
            entry("dedupe/a::b::c", b"1", Some(u64::MAX - 1)),
            entry("dedupe/a::b::c", b"1", Some(i64::MAX as u64)),
        ] {
            let document = RawDocumentBuf::try_from(&encoded(&entry)).unwrap();
            let collection = LAYOUT.locate(&entry.key).collection;
            assert_eq!(decode(collection, &document), Some(entry));
        }
    }

    #[test]
    fn a_cursor_is_readable() {
        let json = br#"{"v":1,"floor":3,"last_id":"x","last_ts":5,"created":1,"epoch":9}"#;
        let entry = entry("cursor/a::b/0", json, None);
        assert_eq!(LAYOUT.locate(&entry.key).collection.name(), "cursors");
        let value = Binary { subtype: BinarySubtype::Generic, bytes: json.to_vec() };
        let expected = doc! {
            "_id": "a::b", "value": value, "version": 7_i64, "key": "cursor/a::b/0",
            "lastId": "x", "lastTs": 5_i64, "epoch": 9_i64,
        };
        assert_eq!(encoded(&entry), expected);
    }

    #[test]
    fn a_group_lease_is_readable() {
        let json = br#"{"v":1,"epoch":3,"holder":"g"}"#;
        let entry = entry("lease/a::b/0", json, None);
        assert_eq!(LAYOUT.locate(&entry.key).collection.name(), "state");
        let value = Binary { subtype: BinarySubtype::Generic, bytes: json.to_vec() };
        let expected = doc! {
            "_id": "lease/a::b/0", "value": value, "version": 7_i64,
            "holder": "g", "epoch": 3_i64,
        };
        assert_eq!(encoded(&entry), expected);
    }

    #[test]
    fn a_mark_of_another_program_needs_no_value() {
        let theirs = doc! { "_id": "a::b::c", "expireAt": DateTime::from_millis(9) };
        let theirs = RawDocumentBuf::try_from(&theirs).unwrap();
        let expected = StateEntry { version: Version(0), ..entry("dedupe/a::b::c", b"1", Some(9)) };
        let location = LAYOUT.locate(&expected.key);
        assert_eq!(location.collection.name(), "dedupe");
        assert_eq!(decode(location.collection, &theirs), Some(expected));
    }
}
