//! Appends JSON to the caller's buffer.

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

/// Appends text that needs no escapes, such as a topic or group name.
pub(crate) fn name(out: &mut Vec<u8>, name: &str) {
    out.push(b'"');
    raw(out, name);
    out.push(b'"');
}

pub(crate) fn event_id(out: &mut Vec<u8>, id: &EventId) {
    match id.as_uuid() {
        Some(uuid) => out.extend_from_slice(&quoted(uuid)),
        None => value(out, id),
    }
}

/// Formats a UUID in its canonical form, quotes included.
fn quoted(uuid: Uuid) -> [u8; 38] {
    const DIGITS: [[u8; 2]; 256] = digits_of_bytes();
    // The index of each byte's two digits; hyphens follow the fourth, sixth, eighth and tenth byte.
    const OFFSETS: [usize; 16] = [1, 3, 5, 7, 10, 12, 15, 17, 20, 22, 25, 27, 29, 31, 33, 35];
    let mut text = *b"\"00000000-0000-0000-0000-000000000000\"";
    for (offset, byte) in OFFSETS.into_iter().zip(*uuid.as_bytes()) {
        [text[offset], text[offset + 1]] = DIGITS[usize::from(byte)];
    }
    text
}

const fn digits_of_bytes() -> [[u8; 2]; 256] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut digits = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        digits[byte] = [DIGITS[byte >> 4], DIGITS[byte & 15]];
        byte += 1;
    }
    digits
}

pub(crate) fn event_ids(out: &mut Vec<u8>, ids: &[EventId]) {
    out.push(b'[');
    for (index, id) in ids.iter().enumerate() {
        comma(out, index);
        event_id(out, id);
    }
    out.push(b']');
}

/// Appends `,"name":` for a literal name. One write, because each write checks the capacity.
macro_rules! known_member {
    ($out:expr, $name:literal) => {
        $crate::frame::write::raw($out, concat!(",\"", $name, "\":"))
    };
}
pub(crate) use known_member;

/// Appends `,"name":`.
pub(crate) fn member(out: &mut Vec<u8>, name: &str) {
    raw(out, ",\"");
    raw(out, name);
    raw(out, "\":");
}

/// Appends `,"corr":…` if there is one.
pub(crate) fn corr(out: &mut Vec<u8>, corr: Option<&Corr>) {
    if let Some(corr) = corr {
        known_member!(out, "corr");
        out.extend_from_slice(corr.as_json());
    }
}

/// Appends `,` unless `index` is 0.
pub(crate) fn comma(out: &mut Vec<u8>, index: usize) {
    if index > 0 {
        out.push(b',');
    }
}

/// Appends `,"name":{…}`, or nothing if `members` appends none. Each member starts with a comma.
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
        // Overwrites the first member's comma.
        out[opening] = b'{';
        out.push(b'}');
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn writes_a_uuid_in_its_canonical_form(bits in any::<u128>()) {
            let uuid = Uuid::from_u128(bits);
            prop_assert_eq!(std::str::from_utf8(&quoted(uuid)).unwrap().to_owned(), format!("\"{uuid}\""));
        }
    }
}
