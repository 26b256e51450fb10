//! JSON text, read in place.
//!
//! One pass finds the members of an object and checks their values; nothing is built. Why not
//! `serde_json`: `docs/decisions/0006-frames-are-read-in-place.md`. A test holds both to the same verdict.

use std::borrow::Cow;

pub(super) use super::json_scan::Malformed;
use super::json_scan::{
    StringEnd, TOO_DEEP, ValueEnd, past_colon, past_space, past_string, past_value, wrong,
};
use crate::limits::MAX_FRAME_NESTING;

/// A JSON value that was found valid: its text, without white space around it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Json<'a> {
    text: &'a str,
    /// Of a string: whether what stands between its quotes is not yet its text.
    has_escapes: bool,
    /// Whether there is white space within it, outside of strings.
    has_space: bool,
}

/// A place in a text.
pub(super) struct Cursor<'a> {
    text: &'a str,
    at: usize,
    nesting: u32,
}

impl<'a> Json<'a> {
    /// A value that is known to be valid.
    pub(super) fn of_valid(text: &'a str) -> Self {
        Self { text, has_escapes: text.contains('\\'), has_space: true }
    }

    /// The text of the value.
    pub(crate) const fn raw(self) -> &'a str {
        self.text
    }

    /// Whether it may be of several lines.
    pub(crate) const fn has_space(self) -> bool {
        self.has_space
    }

    pub(super) fn is_null(self) -> bool {
        self.text == "null"
    }

    /// The string it is. None as well for escapes that are no Unicode.
    pub(super) fn text(self) -> Option<Cow<'a, str>> {
        if !self.text.starts_with('"') {
            return None;
        }
        match self.without_escapes() {
            Some(text) => Some(Cow::Borrowed(text)),
            None => serde_json::from_str(self.text).ok().map(Cow::Owned),
        }
    }

    /// Of a string: its text, if that is what stands between the quotes.
    #[inline]
    pub(super) fn without_escapes(self) -> Option<&'a str> {
        if self.has_escapes { None } else { Some(&self.text[1..self.text.len() - 1]) }
    }

    /// The whole number it is, written without point or exponent.
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

/// The one value in `text`, which may have white space around it.
pub(crate) fn lone_value(text: &str) -> Option<Json<'_>> {
    let mut cursor = Cursor::new(text);
    let value = cursor.value().ok()?;
    cursor.end().ok()?;
    Some(value)
}

impl<'a> Cursor<'a> {
    /// At the first thing that is not white space.
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: past_space(text.as_bytes(), 0, &mut false), nesting: 0 }
    }

    /// The same for a value that will be a member of something: one object is around it already.
    pub(super) fn of_member(text: &'a str) -> Self {
        Self { nesting: 1, ..Self::new(text) }
    }

    pub(super) fn is_at_object(&self) -> bool {
        self.is_at(b'{')
    }

    /// Hands each member of the object here to `each`, and goes behind it.
    pub(super) fn members(
        &mut self,
        mut each: impl FnMut(Json<'a>, Json<'a>),
    ) -> Result<(), Malformed> {
        let bytes = self.text.as_bytes();
        let mut more = self.open(b'{', b'}', "'{' expected")?;
        while more {
            let name = self.string()?;
            self.at = past_colon(bytes, self.at, &mut false)?;
            let value = self.value()?;
            each(name, value);
            more = self.comma_or(b'}', "',' or '}' expected behind a member")?;
        }
        Ok(())
    }

    /// Stands `each` before every element of the array here, which it has to go behind.
    pub(super) fn elements<E: From<Malformed>>(
        &mut self,
        mut each: impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut more = self.open(b'[', b']', "'[' expected")?;
        while more {
            each(self)?;
            more = self.comma_or(b']', "',' or ']' expected behind an element")?;
        }
        Ok(())
    }

    /// The value here; goes behind it.
    pub(super) fn value(&mut self) -> Result<Json<'a>, Malformed> {
        if self.is_at(b'"') {
            return self.string();
        }
        let start = self.at;
        let room = MAX_FRAME_NESTING - self.nesting;
        let ValueEnd { at, has_space } = past_value(self.text.as_bytes(), start, room)?;
        self.at = at;
        Ok(Json { text: self.since(start), has_escapes: false, has_space })
    }

    #[inline(always)]
    fn string(&mut self) -> Result<Json<'a>, Malformed> {
        let start = self.at;
        let StringEnd { at, has_escapes } = past_string(self.text.as_bytes(), start)?;
        self.at = at;
        Ok(Json { text: self.since(start), has_escapes, has_space: false })
    }

    /// Nothing but white space may be left.
    pub(super) fn end(self) -> Result<(), Malformed> {
        let at = past_space(self.text.as_bytes(), self.at, &mut false);
        if at == self.text.len() { Ok(()) } else { wrong(at, "nothing expected behind the value") }
    }

    /// Goes into an object or array; whether there is anything in it.
    fn open(&mut self, open: u8, close: u8, what: &'static str) -> Result<bool, Malformed> {
        if !self.is_at(open) {
            return wrong(self.at, what);
        }
        self.nesting += 1;
        if self.nesting > MAX_FRAME_NESTING {
            return wrong(self.at, TOO_DEEP);
        }
        self.at = past_space(self.text.as_bytes(), self.at + 1, &mut false);
        let empty = self.is_at(close);
        if empty {
            self.close();
        }
        Ok(!empty)
    }

    /// Goes to what follows a member or element; whether anything does.
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
/// An object of which only the named members matter: their values, of doubled ones the last.
macro_rules! members {
    ($(#[$doc:meta])* $type:ident { $($field:ident = $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default)]
        pub(in crate::frame) struct $type<'a> {
            $(pub(in crate::frame) $field: Option<$crate::frame::json::Json<'a>>,)*
        }

        impl<'a> $type<'a> {
            /// Reads the object that `cursor` stands at. In place, for it is too large to be handed on.
            pub(in crate::frame) fn read(
                &mut self,
                cursor: &mut $crate::frame::json::Cursor<'a>,
            ) -> Result<(), $crate::frame::json::Malformed> {
                // A name with an escape in it is none of ours until it is decoded.
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
