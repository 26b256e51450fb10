//! Event payloads: raw JSON.

use std::fmt;

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;
use thiserror::Error;

use crate::byte_search::any_byte;
use crate::frame::{Json, lone_value};

/// Bytes that are not a JSON value, or a value that JSON cannot represent.
#[derive(Debug, Error)]
#[error("the payload is not valid JSON: {0}")]
pub struct InvalidPayload(#[from] serde_json::Error);

/// One JSON value as its publisher wrote it: validated once, then carried as bytes and never
/// re-serialised.
///
/// Line breaks between tokens become spaces, so that an event is always one line (inside a JSON
/// string, line breaks are always escaped). White space around the value is dropped. Nothing else
/// changes: numbers, escapes and the order of members are preserved.
#[derive(Clone, PartialEq, Eq)]
pub struct Payload(Bytes);

impl Payload {
    /// Validates `json`. Copies it only if it contains a line break.
    ///
    /// # Errors
    ///
    /// [`InvalidPayload`] if `json` is not exactly one JSON value.
    pub fn parse(json: Bytes) -> Result<Self, InvalidPayload> {
        let (value, has_space) = match std::str::from_utf8(&json).ok().and_then(lone_value) {
            Some(value) => (value.raw(), value.has_space()),
            // `serde_json` explains what is wrong, and accepts deeper nesting.
            None => (serde_json::from_slice::<&RawValue>(&json)?.get(), true),
        };
        let value = value.as_bytes();
        // `slice_ref` allocates a shared reference count; usually the value is all of `json`.
        let part = (value.len() < json.len()).then(|| json.slice_ref(value));
        let json = part.unwrap_or(json);
        Ok(Self(if has_space { on_one_line(json) } else { json }))
    }

    /// Copies a value that `serde_json` has already validated.
    #[must_use]
    pub fn from_raw(value: &RawValue) -> Self {
        Self(on_one_line(Bytes::copy_from_slice(value.get().as_bytes())))
    }

    /// Serialises `value`.
    ///
    /// # Errors
    ///
    /// [`InvalidPayload`] if JSON cannot represent `value`, such as a map whose keys are not strings.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, InvalidPayload> {
        Ok(Self(on_one_line(serde_json::to_vec(value)?.into())))
    }

    /// Slices a validated value out of `text`. Copies it only if it contains a line break.
    pub(crate) fn within(text: &Bytes, value: Json<'_>) -> Self {
        let json = text.slice_ref(value.raw().as_bytes());
        Self(if value.has_space() { on_one_line(json) } else { json })
    }

    /// Returns the JSON text: one line, without surrounding white space.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

fn on_one_line(json: Bytes) -> Bytes {
    let is_break = |byte| matches!(byte, b'\n' | b'\r');
    if !any_byte(&json, is_break) {
        return json;
    }
    json.iter().map(|&byte| if is_break(byte) { b' ' } else { byte }).collect()
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<Payload, InvalidPayload> {
        Payload::parse(Bytes::copy_from_slice(text.as_bytes()))
    }

    #[test]
    fn preserves_the_bytes() {
        for json in ["1e400", "{\"b\":1, \"a\":1,\"a\":2}", "\"\\u00e9é\"", "null", "-0.0"] {
            assert_eq!(parse(json).unwrap().as_bytes(), json.as_bytes());
        }
    }

    #[test]
    fn is_always_one_line() {
        assert_eq!(parse(" {\r\n \"a\":\n1}\n").unwrap().as_bytes(), b"{   \"a\": 1}");
    }

    #[test]
    fn replaces_line_breaks_between_all_tokens() {
        let in_arrays = ["[_]", "[_1]", "[1_]", "[1_,2]", "[1,_2]", "[[]_]"];
        let in_objects = ["{_}", r#"{_"a":1}"#, r#"{"a"_:1}"#, r#"{"a":_1}"#, r#"{"a":1_}"#];
        let between_members = [r#"{"a":1_,"b":2}"#, r#"{"a":1,_"b":2}"#];
        for json in in_arrays.iter().chain(&in_objects).chain(&between_members) {
            for line_break in ["\n", "\r"] {
                let payload = parse(&json.replace('_', line_break)).unwrap();
                assert_eq!(payload.as_bytes(), json.replace('_', " ").as_bytes());
            }
        }
    }

    #[test]
    fn serialises_values() {
        assert_eq!(Payload::of(&("a", [1, 2])).unwrap().as_bytes(), b"[\"a\",[1,2]]");
        let raw: Box<RawValue> = serde_json::from_str("{\n}").unwrap();
        assert_eq!(Payload::of(&raw).unwrap().as_bytes(), b"{ }");
        let pairs = std::collections::HashMap::from([((1, 2), 3)]);
        assert!(Payload::of(&pairs).is_err());
    }

    #[test]
    fn refuses_invalid_json() {
        for bad in ["", "{", "{}{}", "nul", "'a'", "\"\n\"", "01", "[1,]"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert!(Payload::parse(Bytes::from_static(b"\"\xff\"")).is_err());
    }

    proptest! {
        #[test]
        fn accepts_what_serde_json_accepts(text in "[ \\[\\]{}\":,0-9.eE+tfn\\\\-]{0,12}|\\[{0,200}\\]{0,200}|\\PC{0,8}") {
            let valid = serde_json::from_str::<&RawValue>(&text).map(|value| value.get().to_owned());
            let accepted = parse(&text).map(|payload| payload.as_bytes().to_owned());
            prop_assert_eq!(accepted.ok(), valid.ok().map(String::into_bytes));
        }
    }

    #[test]
    fn does_not_copy_a_single_line() {
        let json = Bytes::from_static(b"{\"a\":1}");
        assert_eq!(Payload::parse(json.clone()).unwrap().as_bytes().as_ptr(), json.as_ptr());
    }
}
