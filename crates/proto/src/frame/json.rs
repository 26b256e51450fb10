//! A JSON reader that works in place.
//!
//! One pass finds the members of an object and validates their values without building a tree. Why
//! not `serde_json`: `docs/decisions/0006-frames-are-read-in-place.md`. A test checks that both accept
//! the same texts.

use std::borrow::Cow;

pub(super) use super::json_scan::Malformed;
use super::json_scan::{
    StringEnd, ValueEnd, past_colon, past_space, past_string, past_value, too_deep, wrong,
};
use crate::limits::MAX_FRAME_NESTING;

/// The text of a validated JSON value, without surrounding white space.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Json<'a> {
    text: &'a str,
    /// For a string: its text has escapes to decode.
    has_escapes: bool,
    /// It has white space outside of strings, so it may span several lines.
    has_space: bool,
    /// The levels of objects and arrays in it.
    nesting: u32,
}

/// A read position in JSON text.
pub(super) struct Cursor<'a> {
    text: &'a str,
    at: usize,
    nesting: u32,
}

impl<'a> Json<'a> {
    /// Wraps text that is known to be a valid string, number, boolean or null.
    pub(super) fn from_valid(text: &'a str) -> Self {
        Self { text, has_escapes: text.contains('\\'), has_space: true, nesting: 0 }
    }

    /// Returns the JSON text of the value.
    pub(crate) const fn raw(self) -> &'a str {
        self.text
    }

    /// Returns `true` if the value may span several lines.
    pub(crate) const fn has_space(self) -> bool {
        self.has_space
    }

    /// Returns the levels of objects and arrays in the value: 0 for a string or number.
    pub(super) const fn nesting(self) -> u32 {
        self.nesting
    }

    pub(super) fn is_null(self) -> bool {
        self.text == "null"
    }

    /// Returns the decoded string; `None` for other values and for escapes that are not Unicode.
    pub(super) fn text(self) -> Option<Cow<'a, str>> {
        if !self.text.starts_with('"') {
            return None;
        }
        match self.without_escapes() {
            Some(text) => Some(Cow::Borrowed(text)),
            None => serde_json::from_str(self.text).ok().map(Cow::Owned),
        }
    }

    /// For a string: returns its text if there is nothing to decode.
    #[inline]
    pub(super) fn without_escapes(self) -> Option<&'a str> {
        if self.has_escapes { None } else { Some(&self.text[1..self.text.len() - 1]) }
    }

    /// Returns the number if it is a `u64` written without point or exponent.
    pub(super) fn whole_number(self) -> Option<u64> {
        self.text.parse().ok()
    }

    pub(super) fn is_array(self) -> bool {
        self.text.starts_with('[')
    }

    pub(super) fn cursor(self) -> Cursor<'a> {
        Cursor::new(self.text)
    }
}

/// Reads `text` as exactly one value, which may be surrounded by white space.
pub(crate) fn lone_value(text: &str) -> Option<Json<'_>> {
    let mut cursor = Cursor::new(text);
    let value = cursor.value().ok()?;
    cursor.end().ok()?;
    Some(value)
}

impl<'a> Cursor<'a> {
    /// Starts at the first character that is not white space.
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: past_space(text.as_bytes(), 0, &mut false), nesting: 0 }
    }

    pub(super) fn is_at_object(&self) -> bool {
        self.is_at(b'{')
    }

    /// Passes the name and value of each member of the object here to `each`, and moves past it.
    pub(super) fn members(
        &mut self,
        mut each: impl FnMut(Json<'a>, Json<'a>),
    ) -> Result<(), Malformed> {
        let bytes = self.text.as_bytes();
        let mut more = self.open(b'{', b'}', "expected '{'")?;
        while more {
            let name = self.string()?;
            self.at = past_colon(bytes, self.at, &mut false)?;
            let value = self.value()?;
            each(name, value);
            more = self.comma_or(b'}', "expected ',' or '}' after a member")?;
        }
        Ok(())
    }

    /// Calls `each` at every element of the array here; `each` must move past the element.
    pub(super) fn elements<E: From<Malformed>>(
        &mut self,
        mut each: impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut more = self.open(b'[', b']', "expected '['")?;
        while more {
            each(self)?;
            more = self.comma_or(b']', "expected ',' or ']' after an element")?;
        }
        Ok(())
    }

    /// Reads the value here and moves past it.
    pub(super) fn value(&mut self) -> Result<Json<'a>, Malformed> {
        if self.is_at(b'"') {
            return self.string();
        }
        let start = self.at;
        let room = MAX_FRAME_NESTING - self.nesting;
        let ValueEnd { at, has_space, nesting } = past_value(self.text.as_bytes(), start, room)?;
        self.at = at;
        Ok(Json { text: self.since(start), has_escapes: false, has_space, nesting })
    }

    #[inline(always)]
    fn string(&mut self) -> Result<Json<'a>, Malformed> {
        let start = self.at;
        let StringEnd { at, has_escapes } = past_string(self.text.as_bytes(), start)?;
        self.at = at;
        Ok(Json { text: self.since(start), has_escapes, has_space: false, nesting: 0 })
    }

    /// Checks that only white space is left.
    pub(super) fn end(self) -> Result<(), Malformed> {
        let at = past_space(self.text.as_bytes(), self.at, &mut false);
        if at == self.text.len() { Ok(()) } else { wrong(at, "unexpected text after the value") }
    }

    /// Enters an object or array. Returns `false` if it is empty, and moves past it.
    fn open(&mut self, open: u8, close: u8, what: &'static str) -> Result<bool, Malformed> {
        if !self.is_at(open) {
            return wrong(self.at, what);
        }
        self.nesting += 1;
        if self.nesting > MAX_FRAME_NESTING {
            return too_deep(self.at);
        }
        self.at = past_space(self.text.as_bytes(), self.at + 1, &mut false);
        let empty = self.is_at(close);
        if empty {
            self.close();
        }
        Ok(!empty)
    }

    /// Moves to the next member or element. Returns `false` if there is none, and moves past the end.
    fn comma_or(&mut self, close: u8, what: &'static str) -> Result<bool, Malformed> {
        self.at = past_space(self.text.as_bytes(), self.at, &mut false);
        if self.is_at(b',') {
            self.at = past_space(self.text.as_bytes(), self.at + 1, &mut false);
            return Ok(true);
        }
        if !self.is_at(close) {
            return wrong(self.at, what);
        }
        self.close();
        Ok(false)
    }

    fn close(&mut self) {
        self.at += 1;
        self.nesting -= 1;
    }

    fn since(&self, start: usize) -> &'a str {
        &self.text[start..self.at]
    }

    fn is_at(&self, byte: u8) -> bool {
        self.text.as_bytes().get(self.at) == Some(&byte)
    }
}
/// Declares a struct that reads the named members of an object and ignores all others. Of a
/// repeated member, the last one wins.
macro_rules! members {
    ($(#[$doc:meta])* $type:ident { $($field:ident = $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default)]
        pub(in crate::frame) struct $type<'a> {
            $(pub(in crate::frame) $field: Option<$crate::frame::json::Json<'a>>,)*
        }

        impl<'a> $type<'a> {
            /// Reads the object at `cursor`. Fills `self` in place: the struct is too large to return.
            pub(in crate::frame) fn read(
                &mut self,
                cursor: &mut $crate::frame::json::Cursor<'a>,
            ) -> Result<(), $crate::frame::json::Malformed> {
                // A name with escapes has to be decoded before it can match.
                cursor.members(|name, value| match name.without_escapes() {
                    Some(name) => self.set(name, value),
                    None => self.set(&name.text().unwrap_or_default(), value),
                })
            }

            fn set(&mut self, name: &str, value: $crate::frame::json::Json<'a>) {
                match name {
                    $($name => self.$field = Some(value),)*
                    _ => {}
                }
            }
        }
    };
}
pub(super) use members;

#[cfg(test)]
#[path = "json_tests.rs"]
mod tests;
