//! The payload of an event: raw JSON.

use std::fmt;

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;
use thiserror::Error;

use crate::byte_search::any_byte;
use crate::frame::{Json, lone_value};

/// Why bytes are no payload.
#[derive(Debug, Error)]
#[error("the payload is not valid JSON: {0}")]
pub struct InvalidPayload(#[from] serde_json::Error);

/// One JSON value as its sender wrote it. Validated once, carried as bytes, never printed again.
///
/// Line breaks between tokens become spaces, so that an event is always one line; inside a JSON
/// string a raw line break cannot occur. White space around the value is dropped. Nothing else
/// changes: numbers, escapes and the order of members stay as they came.
#[derive(Clone, PartialEq, Eq)]
pub struct Payload(Bytes);

impl Payload {
    /// Validates `json`. Copies only where a line break has to go.
    pub fn parse(json: Bytes) -> Result<Self, InvalidPayload> {
        let (value, has_space) = match std::str::from_utf8(&json).ok().and_then(lone_value) {
            Some(value) => (value.raw(), value.has_space()),
            // It says what is wrong with it, and takes what is nested more deeply.
            None => (serde_json::from_slice::<&RawValue>(&json)?.get(), true),
        };
        let value = value.as_bytes();
        // A part shares the whole with others, which takes an allocation: mostly it is the whole.
        let part = (value.len() < json.len()).then(|| json.slice_ref(value));
        let json = part.unwrap_or(json);
        Ok(Self(if has_space { on_one_line(json) } else { json }))
    }

    /// Takes a value that a JSON parser has already found valid.
    #[must_use]
    pub fn from_raw(value: &RawValue) -> Self {
        Self(on_one_line(Bytes::copy_from_slice(value.get().as_bytes())))
    }

    /// Makes JSON of `value`. Fails where JSON has no form for it, such as a map whose keys are no
    /// text.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, InvalidPayload> {
        Ok(Self(on_one_line(serde_json::to_vec(value)?.into())))
    }

    /// Takes a value within `text` that was already found valid. Copies only where a line break
    /// has to go.
    pub(crate) fn within(text: &Bytes, value: Json<'_>) -> Self {
        let json = text.slice_ref(value.raw().as_bytes());
        Self(if value.has_space() { on_one_line(json) } else { json })
    }

    /// The JSON text.
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
    fn keeps_the_bytes() {
        for json in ["1e400", "{\"b\":1, \"a\":1,\"a\":2}", "\"\\u00e9é\"", "null", "-0.0"] {
            assert_eq!(parse(json).unwrap().as_bytes(), json.as_bytes());
        }
    }

    #[test]
    fn is_always_one_line() {
        assert_eq!(parse(" {\r\n \"a\":\n1}\n").unwrap().as_bytes(), b"{   \"a\": 1}");
    }

    #[test]
    fn line_breaks_go_wherever_they_are() {
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
    fn is_made_of_what_can_be_serialised() {
        assert_eq!(Payload::of(&("a", [1, 2])).unwrap().as_bytes(), b"[\"a\",[1,2]]");
        let raw: Box<RawValue> = serde_json::from_str("{\n}").unwrap();
        assert_eq!(Payload::of(&raw).unwrap().as_bytes(), b"{ }");
        let pairs = std::collections::HashMap::from([((1, 2), 3)]);
        assert!(Payload::of(&pairs).is_err());
    }

    #[test]
    fn refuses_what_is_no_json() {
        for bad in ["", "{", "{}{}", "nul", "'a'", "\"\n\"", "01", "[1,]"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert!(Payload::parse(Bytes::from_static(b"\"\xff\"")).is_err());
    }

    proptest! {
        #[test]
        fn takes_what_serde_takes(text in "[ \\[\\]{}\":,0-9.eE+tfn\\\\-]{0,12}|\\[{0,200}\\]{0,200}|\\PC{0,8}") {
            let valid = serde_json::from_str::<&RawValue>(&text).map(|value| value.get().to_owned());
            let taken = parse(&text).map(|payload| payload.as_bytes().to_owned());
            prop_assert_eq!(taken.ok(), valid.ok().map(String::into_bytes));
        }
    }

    #[test]
    fn does_not_copy_without_need() {
        let json = Bytes::from_static(b"{\"a\":1}");
        assert_eq!(Payload::parse(json.clone()).unwrap().as_bytes().as_ptr(), json.as_ptr());
    }
}
