//! JSON text, read in place.
//!
//! One pass finds the members of an object and checks their values; nothing is built. Why not
//! `serde_json`: `docs/decisions/0006-frames-are-read-in-place.md`. A test holds both to the same verdict.

use std::borrow::Cow;

pub(super) use super::json_scan::Malformed;
use super::json_scan::{TOO_DEEP, past_colon, past_space, past_string, past_value, wrong};
use crate::byte_search::any_byte;
use crate::limits::MAX_FRAME_NESTING;

/// A JSON value that was found valid: its text, without white space around it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Json<'a>(&'a str);

/// A place in a text.
pub(super) struct Cursor<'a> {
    text: &'a str,
    at: usize,
    nesting: u32,
}

impl<'a> Json<'a> {
    /// A value that is known to be valid.
    pub(super) const fn of_valid(text: &'a str) -> Self {
        Self(text)
    }

    /// The text of the value.
    pub(super) const fn raw(self) -> &'a str {
        self.0
    }

    pub(super) fn is_null(self) -> bool {
        self.0 == "null"
    }

    /// The string it is. None as well for escapes that are no Unicode.
    pub(super) fn text(self) -> Option<Cow<'a, str>> {
        if !self.0.starts_with('"') {
            return None;
        }
        match self.without_escapes() {
            Some(text) => Some(Cow::Borrowed(text)),
            None => serde_json::from_str(self.0).ok().map(Cow::Owned),
        }
    }

    /// Of a string: its text, if that is what stands between the quotes.
    #[inline]
    pub(super) fn without_escapes(self) -> Option<&'a str> {
        let inner = &self.0[1..self.0.len() - 1];
        (!any_byte(inner.as_bytes(), |byte| byte == b'\\')).then_some(inner)
    }

    /// The whole number it is, written without point or exponent.
    pub(super) fn whole_number(self) -> Option<u64> {
        self.0.parse().ok()
    }

    pub(super) fn is_array(self) -> bool {
        self.0.starts_with('[')
    }

    pub(super) fn cursor(self) -> Cursor<'a> {
        Cursor::new(self.0)
    }
}

/// The one value in `text`, which may have white space around it.
pub(crate) fn lone_value(text: &str) -> Option<&str> {
    let mut cursor = Cursor::new(text);
    let value = cursor.value().ok()?;
    cursor.end().ok()?;
    Some(value.raw())
}

impl<'a> Cursor<'a> {
    /// At the first thing that is not white space.
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: past_space(text.as_bytes(), 0), nesting: 0 }
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
            let name_at = self.at;
            self.at = past_string(bytes, name_at)?;
            let name = self.since(name_at);
            self.at = past_colon(bytes, self.at)?;
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
        let start = self.at;
        self.at = past_value(self.text.as_bytes(), start, MAX_FRAME_NESTING - self.nesting)?;
        Ok(self.since(start))
    }

    /// Nothing but white space may be left.
    pub(super) fn end(self) -> Result<(), Malformed> {
        let at = past_space(self.text.as_bytes(), self.at);
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
        self.at = past_space(self.text.as_bytes(), self.at + 1);
        let empty = self.is_at(close);
        if empty {
            self.close();
        }
        Ok(!empty)
    }

    /// Goes to what follows a member or element; whether anything does.
    fn comma_or(&mut self, close: u8, what: &'static str) -> Result<bool, Malformed> {
        self.at = past_space(self.text.as_bytes(), self.at);
        if self.is_at(b',') {
            self.at = past_space(self.text.as_bytes(), self.at + 1);
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

    fn since(&self, start: usize) -> Json<'a> {
        Json(&self.text[start..self.at])
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
            /// Reads the object that `cursor` stands at.
            pub(in crate::frame) fn read(
                cursor: &mut $crate::frame::json::Cursor<'a>,
            ) -> Result<Self, $crate::frame::json::Malformed> {
                let mut found = Self::default();
                cursor.members(|name, value| {
                    let mut set = |name: &str| match name {
                        $($name => found.$field = Some(value),)*
                        _ => {}
                    };
                    // A name with an escape in it is none of ours until it is decoded.
                    match name.without_escapes() {
                        Some(name) => set(name),
                        None => set(&name.text().unwrap_or_default()),
                    }
                })?;
                Ok(found)
            }
        }
    };
}
pub(super) use members;

#[cfg(test)]
#[path = "json_tests.rs"]
mod tests;
