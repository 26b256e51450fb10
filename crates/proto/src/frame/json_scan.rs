//! The JSON scanner: finds where each token ends and validates it.
//!
//! Each function takes the index where a token starts and returns the index after it. Plain indices
//! and one loop instead of recursion keep it fast.

use std::fmt;

use crate::limits::MAX_FRAME_NESTING;

/// Text that cannot be read as JSON, and the byte index of the reason.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Malformed {
    Syntax { at: usize, what: &'static str },
    TooDeep { at: usize },
}

const _: () = assert!(MAX_FRAME_NESTING <= u128::BITS, "a u128 has one bit per level");

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax { at, what } => write!(f, "{what} at byte {at}"),
            Self::TooDeep { at } => {
                write!(f, "nested deeper than {MAX_FRAME_NESTING} levels at byte {at}")
            }
        }
    }
}

#[cold]
pub(super) fn wrong<T>(at: usize, what: &'static str) -> Result<T, Malformed> {
    Err(Malformed::Syntax { at, what })
}

#[cold]
pub(super) fn too_deep<T>(at: usize) -> Result<T, Malformed> {
    Err(Malformed::TooDeep { at })
}

/// The end of a value.
pub(super) struct ValueEnd {
    pub(super) at: usize,
    /// The value has white space outside of strings.
    pub(super) has_space: bool,
    /// The levels of objects and arrays in it.
    pub(super) nesting: u32,
}

/// Returns the end of the value here, which may nest at most `room` levels. `room` is at most 128.
pub(super) fn past_value(text: &[u8], start: usize, room: u32) -> Result<ValueEnd, Malformed> {
    let mut has_space = false;
    // The open brackets, the innermost in the lowest bit: 1 is an object, 0 an array.
    let mut open_kinds = 0_u128;
    let mut in_object = false;
    let mut depth = 0;
    let mut nesting = 0;
    let mut at = start;
    loop {
        if in_object {
            at = past_colon(text, past_string(text, at)?.at, &mut has_space)?;
        }
        match text.get(at) {
            Some(b'"') => at = past_string(text, at)?.at,
            Some(b'-' | b'0'..=b'9') => at = past_number(text, at)?,
            Some(&bracket @ (b'{' | b'[')) => {
                if depth == room {
                    return too_deep(at);
                }
                nesting = nesting.max(depth + 1);
                let is_object = bracket == b'{';
                at = past_space(text, at + 1, &mut has_space);
                if text.get(at) == Some(if is_object { &b'}' } else { &b']' }) {
                    at += 1;
                } else {
                    depth += 1;
                    open_kinds = open_kinds << 1 | u128::from(is_object);
                    in_object = is_object;
                    continue;
                }
            }
            Some(b't') => at = past_word(text, at, b"true")?,
            Some(b'f') => at = past_word(text, at, b"false")?,
            Some(b'n') => at = past_word(text, at, b"null")?,
            _ => return wrong(at, "expected a value"),
        }
        // After a value: close every object and array that ends here, then go to the next value.
        loop {
            if depth == 0 {
                return Ok(ValueEnd { at, has_space, nesting });
            }
            at = past_space(text, at, &mut has_space);
            match text.get(at) {
                Some(b',') => {
                    at = past_space(text, at + 1, &mut has_space);
                    break;
                }
                Some(b'}') if in_object => {}
                Some(b']') if !in_object => {}
                _ if in_object => return wrong(at, "expected ',' or '}' after a member"),
                _ => return wrong(at, "expected ',' or ']' after an element"),
            }
            at += 1;
            depth -= 1;
            open_kinds >>= 1;
            in_object = open_kinds & 1 == 1;
        }
    }
}

/// Returns the index after a colon and the white space around it. Sets `has_space` if there is any.
#[inline(always)]
pub(super) fn past_colon(text: &[u8], at: usize, has_space: &mut bool) -> Result<usize, Malformed> {
    let at = past_space(text, at, has_space);
    if text.get(at) != Some(&b':') {
        return wrong(at, "expected ':' after a member name");
    }
    Ok(past_space(text, at + 1, has_space))
}

/// Returns the index after the white space here. Sets `has_space` if there is any.
#[inline(always)]
pub(super) fn past_space(text: &[u8], at: usize, has_space: &mut bool) -> usize {
    // Usually there is none: every token starts with a byte above the space.
    if matches!(text.get(at), Some(b'!'..)) {
        return at;
    }
    *has_space = true;
    past_some_space(text, at)
}

#[inline(never)]
fn past_some_space(text: &[u8], mut at: usize) -> usize {
    while matches!(text.get(at), Some(b' ' | b'\n' | b'\r' | b'\t')) {
        at += 1;
    }
    at
}

/// The end of a string.
pub(super) struct StringEnd {
    pub(super) at: usize,
    pub(super) has_escapes: bool,
}

#[inline(always)]
pub(super) fn past_string(text: &[u8], mut at: usize) -> Result<StringEnd, Malformed> {
    if text.get(at) != Some(&b'"') {
        return wrong(at, "expected '\"'");
    }
    at += 1;
    let mut has_escapes = false;
    loop {
        at = past_plain(text, at);
        match text.get(at) {
            Some(b'"') => return Ok(StringEnd { at: at + 1, has_escapes }),
            Some(b'\\') => {
                at = past_escape(text, at)?;
                has_escapes = true;
            }
            Some(_) => return wrong(at, "unescaped control character in a string"),
            None => return wrong(at, "unterminated string"),
        }
    }
}

fn past_escape(text: &[u8], at: usize) -> Result<usize, Malformed> {
    match text.get(at + 1) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 2),
        Some(b'u') => match text.get(at + 2..at + 6) {
            Some(digits) if digits.iter().all(u8::is_ascii_hexdigit) => Ok(at + 6),
            _ => wrong(at, "expected four hexadecimal digits after \\u"),
        },
        _ => wrong(at, "invalid escape"),
    }
}

#[inline]
fn past_number(text: &[u8], mut at: usize) -> Result<usize, Malformed> {
    at += usize::from(text.get(at) == Some(&b'-'));
    at = if text.get(at) == Some(&b'0') { at + 1 } else { past_digits(text, at)? };
    if text.get(at) == Some(&b'.') {
        at = past_digits(text, at + 1)?;
    }
    if matches!(text.get(at), Some(b'e' | b'E')) {
        at += 1;
        at += usize::from(matches!(text.get(at), Some(b'+' | b'-')));
        at = past_digits(text, at)?;
    }
    Ok(at)
}

#[inline]
fn past_digits(text: &[u8], start: usize) -> Result<usize, Malformed> {
    let at = past_any_digits(text, start);
    if at == start { wrong(at, "expected a digit") } else { Ok(at) }
}

/// Returns the index after the digits here, if any. Checks eight bytes at a time.
#[inline(always)]
pub(super) fn past_any_digits(text: &[u8], mut at: usize) -> usize {
    while let Some(word) = word_at(text, at) {
        // The XOR turns digits into 0..=9 and everything else into more. The high bits are masked so
        // that no addition carries into the next byte.
        let from_zero = word ^ (ONES * u64::from(b'0'));
        let above_nine = (from_zero & !HIGH_BITS) + ONES * (0x80 - 10);
        let others = (above_nine | from_zero) & HIGH_BITS;
        if others != 0 {
            return at + first_marked(others);
        }
        at += 8;
    }
    while matches!(text.get(at), Some(b'0'..=b'9')) {
        at += 1;
    }
    at
}

fn past_word(text: &[u8], at: usize, word: &[u8]) -> Result<usize, Malformed> {
    match text[at..].starts_with(word) {
        true => Ok(at + word.len()),
        false => wrong(at, "expected true, false or null"),
    }
}

/// Returns the index of the first quote, backslash or control character. Checks eight bytes at a time.
#[inline(always)]
pub(super) fn past_plain(text: &[u8], mut at: usize) -> usize {
    while let Some(word) = word_at(text, at) {
        // In `(word ^ a) - b`, the high bit of a byte is set if `byte ^ a < b`. False positives are
        // either not ASCII (masked by `!word`) or come after a true one. XOR with 0x02 moves the quote
        // right after the control characters and only permutes those among themselves.
        let quotes_and_controls = (word ^ (ONES * 0x02)).wrapping_sub(ONES * 0x21);
        let backslashes = (word ^ (ONES * u64::from(b'\\'))).wrapping_sub(ONES);
        let stops = (quotes_and_controls | backslashes) & !word & HIGH_BITS;
        if stops != 0 {
            return at + first_marked(stops);
        }
        at += 8;
    }
    while !matches!(text.get(at), Some(b'"' | b'\\' | 0..0x20) | None) {
        at += 1;
    }
    at
}

const ONES: u64 = u64::MAX / 255;
const HIGH_BITS: u64 = ONES << 7;

/// Returns the next eight bytes as a little-endian word, or `None` if fewer are left.
#[inline(always)]
fn word_at(text: &[u8], at: usize) -> Option<u64> {
    text.get(at..)?.first_chunk().map(|word| u64::from_le_bytes(*word))
}

/// Returns the index of the first byte whose high bit is set.
#[inline(always)]
const fn first_marked(high_bits: u64) -> usize {
    high_bits.trailing_zeros() as usize / 8
}
