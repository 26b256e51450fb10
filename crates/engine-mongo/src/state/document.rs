//! An entry of the keyed state as a document.

use bytes::Bytes;
use mongodb::bson::raw::{RawBsonRef, RawDocument};
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, DateTime, Document, doc};
use prombus_engine::{StateEntry, Version};
use prombus_proto::Timestamp;
use serde::Deserialize;

use crate::layout::numbers::{from_bson, number_in, to_bson};
use crate::state::collection::{Place, Shelf};

/// What a mark holds that another program made.
const MARK: &[u8] = b"1";

/// What the keys of those start with that say which gateway holds a group.
const LEASE_PREFIX: &[u8] = b"lease/";

/// The document that holds `entry`.
pub(crate) fn encode(place: &Place, entry: &StateEntry) -> Document {
    let value = Binary { subtype: BinarySubtype::Generic, bytes: entry.value.to_vec() };
    let mut document =
        doc! { "_id": &place.id, "value": value, "version": to_bson(entry.version.0) };
    if let Some(end) = entry.expires_at {
        document.insert("expireAt", date_of(end));
        if i64::try_from(end.0).is_err() {
            document.insert("expires", end.0.to_string());
        }
    }
    if place.shelf == Shelf::Cursors {
        document.insert("key", String::from_utf8_lossy(entry.key.as_bytes()).into_owned());
    }
    if place.shelf == Shelf::Cursors || entry.key.as_bytes().starts_with(LEASE_PREFIX) {
        let readable = Readable::of(&entry.value);
        let texts = [("lastId", readable.last_id), ("holder", readable.holder)];
        let numbers = [("lastTs", readable.last_ts), ("epoch", readable.epoch)];
        for (name, text) in texts {
            document.extend(text.map(|text| (name.to_owned(), text.into())));
        }
        for (name, number) in numbers {
            document.extend(number.map(|number| (name.to_owned(), to_bson(number).into())));
        }
    }
    document
}

/// What other programs read of a cursor, and people of who holds a group. The engine itself does not
/// care what values mean.
#[derive(Default, Deserialize)]
struct Readable {
    last_id: Option<String>,
    last_ts: Option<u64>,
    holder: Option<String>,
    epoch: Option<u64>,
}

impl Readable {
    fn of(value: &[u8]) -> Self {
        serde_json::from_slice(value).unwrap_or_default()
    }
}

/// The entry that a document holds; nothing where it is not one of ours.
pub(crate) fn decode(shelf: Shelf, document: &RawDocument) -> Option<StateEntry> {
    let key = shelf.key_of(document.get_str(shelf.ordered_by()).ok()?)?;
    let value = match document.get_binary("value") {
        Ok(binary) => Bytes::copy_from_slice(binary.bytes),
        Err(_) if shelf == Shelf::Dedupe => Bytes::from_static(MARK),
        Err(_) => return None,
    };
    let version = Version(number_in(document, "version").map_or(0, from_bson));
    let expires_at = match (document.get_str("expires"), document.get("expireAt")) {
        (Ok(exactly), _) => exactly.parse().ok().map(Timestamp),
        (_, Ok(Some(RawBsonRef::DateTime(end)))) => {
            Some(Timestamp(from_bson(end.timestamp_millis())))
        }
        _ => None,
    };
    Some(StateEntry { key, value, version, expires_at })
}

/// Those that are not over at `now`: of the others, some may still be there.
pub(crate) fn not_over(now: Timestamp) -> Document {
    doc! { "$or": [{ "expireAt": { "$exists": false } }, { "expireAt": { "$gt": date_of(now) } }] }
}

pub(crate) fn date_of(moment: Timestamp) -> DateTime {
    DateTime::from_millis(to_bson(moment.0))
}

#[cfg(test)]
mod tests {
    use mongodb::bson::RawDocumentBuf;
    use prombus_engine::StateKey;

    use super::*;

    fn entry(key: &str, value: &'static [u8], expires_at: Option<u64>) -> StateEntry {
        StateEntry {
            key: StateKey::new(key.to_owned()).unwrap(),
            value: Bytes::from_static(value),
            version: Version(7),
            expires_at: expires_at.map(Timestamp),
        }
    }

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        for entry in [
            entry("k", b"\x00\xff", None),
            entry("k", b"", Some(0)),
            entry("cursor/a::b/0", b"{\"v\":1}", Some(u64::MAX)),
            entry("dedupe/a::b::c", b"1", Some(u64::MAX - 1)),
            entry("dedupe/a::b::c", b"1", Some(i64::MAX as u64)),
        ] {
            let place = Place::of(&entry.key);
            let document = RawDocumentBuf::try_from(&encode(&place, &entry)).unwrap();
            assert_eq!(decode(place.shelf, &document), Some(entry));
        }
    }

    #[test]
    fn a_cursor_is_readable() {
        let entry = entry("cursor/a::b/0", br#"{"v":1,"floor":3,"last_id":"x","last_ts":5}"#, None);
        let document = encode(&Place::of(&entry.key), &entry);
        assert_eq!(document.get_str("_id").unwrap(), "a::b");
        assert_eq!(document.get_str("lastId").unwrap(), "x");
        assert_eq!(document.get_i64("lastTs").unwrap(), 5);
    }

    #[test]
    fn who_holds_a_group_is_readable() {
        let entry = entry("lease/a::b/0", br#"{"v":1,"epoch":3,"holder":"g"}"#, None);
        let document = encode(&Place::of(&entry.key), &entry);
        assert_eq!(document.get_str("_id").unwrap(), "lease/a::b/0");
        assert_eq!(document.get_str("holder").unwrap(), "g");
        assert_eq!(document.get_i64("epoch").unwrap(), 3);
    }

    #[test]
    fn a_mark_that_another_program_made_is_one() {
        let theirs = doc! { "_id": "a::b::c", "expireAt": DateTime::from_millis(9) };
        let theirs = RawDocumentBuf::try_from(&theirs).unwrap();
        let read = decode(Shelf::Dedupe, &theirs).unwrap();
        assert_eq!(
            read,
            StateEntry { version: Version(0), ..entry("dedupe/a::b::c", b"1", Some(9)) }
        );
    }
}
