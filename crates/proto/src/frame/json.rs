//! JSON text, read in place.
//!
//! One pass finds the members of an object and checks their values; nothing is built. Why not
//! `serde_json`: `docs/decisions/0005-frames-are-read-in-place.md`. A test holds both to the same verdict.

use std::borrow::Cow;

use crate::limits::MAX_FRAME_NESTING;

/// A JSON value that was found valid: its text, without white space around it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Json<'a>(&'a str);

/// Where text stops being JSON, and what is wrong there.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed {
    pub(super) at: usize,
    pub(super) what: &'static str,
}

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
        let inner = self.0.strip_prefix('"')?.strip_suffix('"')?;
        if inner.bytes().all(|byte| byte != b'\\') {
            return Some(Cow::Borrowed(inner));
        }
        serde_json::from_str(self.0).ok().map(Cow::Owned)
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

impl<'a> Cursor<'a> {
    /// At the first thing that is not white space.
    pub(super) fn new(text: &'a str) -> Self {
        let mut cursor = Self { text, at: 0, nesting: 0 };
        cursor.skip_space();
        cursor
    }

    pub(super) fn is_at_object(&self) -> bool {
        self.peek() == Some(b'{')
    }

    /// Hands each member of the object here to `each`, and goes behind it.
    pub(super) fn members(
        &mut self,
        mut each: impl FnMut(Json<'a>, Json<'a>),
    ) -> Result<(), Malformed> {
        self.open(b'{', "'{' expected")?;
        if self.take(b'}') {
            return self.close();
        }
        loop {
            self.skip_space();
            let name = self.string()?;
            self.skip_space();
            if !self.take(b':') {
                return Err(self.wrong("':' expected behind a member's name"));
            }
            self.skip_space();
            let value = self.value()?;
            each(name, value);
            self.skip_space();
            if !self.take(b',') {
                return match self.take(b'}') {
                    true => self.close(),
                    false => Err(self.wrong("',' or '}' expected behind a member")),
                };
            }
        }
    }

    /// Stands `each` before every element of the array here, which it has to go behind.
    pub(super) fn elements<E: From<Malformed>>(
        &mut self,
        mut each: impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        self.open(b'[', "'[' expected")?;
        if self.take(b']') {
            return Ok(self.close()?);
        }
        loop {
            self.skip_space();
            each(self)?;
            self.skip_space();
            if !self.take(b',') {
                return match self.take(b']') {
                    true => Ok(self.close()?),
                    false => Err(self.wrong("',' or ']' expected behind an element").into()),
                };
            }
        }
    }

    /// The value here; goes behind it.
    pub(super) fn value(&mut self) -> Result<Json<'a>, Malformed> {
        let start = self.at;
        match self.peek() {
            Some(b'"') => return self.string(),
            Some(b'{') => self.members(|_, _| {})?,
            Some(b'[') => self.elements(|cursor| cursor.value().map(drop))?,
            Some(b't') => self.word("true")?,
            Some(b'f') => self.word("false")?,
            Some(b'n') => self.word("null")?,
            Some(b'-' | b'0'..=b'9') => self.number()?,
            _ => return Err(self.wrong("a value expected")),
        }
        Ok(self.since(start))
    }

    /// Nothing but white space may be left.
    pub(super) fn end(mut self) -> Result<(), Malformed> {
        self.skip_space();
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.wrong("nothing expected behind the value")),
        }
    }

    fn string(&mut self) -> Result<Json<'a>, Malformed> {
        let start = self.at;
        if !self.take(b'"') {
            return Err(self.wrong("'\"' expected"));
        }
        let bytes = self.text.as_bytes();
        loop {
            self.at += plain_run(&bytes[self.at..]);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(self.since(start));
                }
                Some(b'\\') => self.escape()?,
                Some(_) => return Err(self.wrong("control characters in a string are escaped")),
                None => return Err(self.wrong("a string does not end")),
            }
        }
    }

    fn escape(&mut self) -> Result<(), Malformed> {
        let bytes = self.text.as_bytes();
        let length = match bytes.get(self.at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => 2,
            Some(b'u') => match bytes.get(self.at + 2..self.at + 6) {
                Some(digits) if digits.iter().all(u8::is_ascii_hexdigit) => 6,
                _ => return Err(self.wrong("four hexadecimal digits expected behind \\u")),
            },
            _ => return Err(self.wrong("not an escape")),
        };
        self.at += length;
        Ok(())
    }

    fn number(&mut self) -> Result<(), Malformed> {
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            let _sign = self.take(b'+') || self.take(b'-');
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), Malformed> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == start { Err(self.wrong("a digit expected")) } else { Ok(()) }
    }

    fn word(&mut self, word: &str) -> Result<(), Malformed> {
        if !self.text.as_bytes()[self.at..].starts_with(word.as_bytes()) {
            return Err(self.wrong("true, false or null expected"));
        }
        self.at += word.len();
        Ok(())
    }

    fn open(&mut self, bracket: u8, what: &'static str) -> Result<(), Malformed> {
        if !self.take(bracket) {
            return Err(self.wrong(what));
        }
        // Values are walked by recursion, so this is what keeps the stack small.
        self.nesting += 1;
        if self.nesting > MAX_FRAME_NESTING {
            return Err(self.wrong("nested deeper than 128"));
        }
        self.skip_space();
        Ok(())
    }

    fn close(&mut self) -> Result<(), Malformed> {
        self.nesting -= 1;
        Ok(())
    }

    fn since(&self, start: usize) -> Json<'a> {
        Json(&self.text[start..self.at])
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    fn wrong(&self, what: &'static str) -> Malformed {
        Malformed { at: self.at, what }
    }
}

/// How many bytes come before the first quote, backslash or control character: eight at a time.
fn plain_run(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 255;
    const HIGH_BITS: u64 = ONES << 7;
    // Marks the zero bytes of a word. What it marks wrongly lies above a byte it marks rightly.
    let zeros = |word: u64| word.wrapping_sub(ONES) & !word;

    let (words, rest) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let controls = word.wrapping_sub(ONES * 0x20) & !word;
        let quotes = zeros(word ^ (ONES * u64::from(b'"')));
        let backslashes = zeros(word ^ (ONES * u64::from(b'\\')));
        let stops = (controls | quotes | backslashes) & HIGH_BITS;
        if stops != 0 {
            return index * 8 + stops.trailing_zeros() as usize / 8;
        }
    }
    let stops = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
    words.len() * 8 + rest.iter().position(stops).unwrap_or(rest.len())
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
                cursor.members(|name, value| match name.text().as_deref() {
                    $(Some($name) => found.$field = Some(value),)*
                    _ => {}
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
