//! JSON text, written piece by piece into the caller's buffer.

use uuid::Uuid;

use super::corr::Corr;
use crate::EventId;

pub(crate) fn raw(out: &mut Vec<u8>, json: &str) {
    out.extend_from_slice(json.as_bytes());
}

pub(crate) fn text(out: &mut Vec<u8>, text: &str) {
    value(out, text);
}

pub(crate) fn value<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(out, value).expect("a plain value always serialises into memory");
}

pub(crate) fn number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// A name of a topic or group: nothing in it needs an escape.
pub(crate) fn name(out: &mut Vec<u8>, name: &str) {
    out.push(b'"');
    raw(out, name);
    out.push(b'"');
}

pub(crate) fn event_id(out: &mut Vec<u8>, id: &EventId) {
    match id.as_uuid() {
        Some(uuid) => name(out, uuid.as_hyphenated().encode_lower(&mut Uuid::encode_buffer())),
        None => value(out, id),
    }
}

pub(crate) fn event_ids(out: &mut Vec<u8>, ids: &[EventId]) {
    out.push(b'[');
    for (index, id) in ids.iter().enumerate() {
        comma(out, index);
        event_id(out, id);
    }
    out.push(b']');
}

/// `,"name":` before the value that follows.
pub(crate) fn member(out: &mut Vec<u8>, name: &str) {
    raw(out, ",\"");
    raw(out, name);
    raw(out, "\":");
}

/// `,"corr":…`, where there is one.
pub(crate) fn corr(out: &mut Vec<u8>, corr: Option<&Corr>) {
    if let Some(corr) = corr {
        member(out, "corr");
        out.extend_from_slice(corr.as_json());
    }
}

/// Writes `,`, but not before the first.
pub(crate) fn comma(out: &mut Vec<u8>, index: usize) {
    if index > 0 {
        out.push(b',');
    }
}

/// An object behind `,"name":`, of members that each begin with a comma; nothing if there are none.
pub(crate) fn object_unless_empty(
    out: &mut Vec<u8>,
    name: &str,
    members: impl FnOnce(&mut Vec<u8>),
) {
    let before = out.len();
    member(out, name);
    let opening = out.len();
    members(out);
    if out.len() == opening {
        out.truncate(before);
    } else {
        // The first member's comma becomes the bracket.
        out[opening] = b'{';
        out.push(b'}');
    }
}
