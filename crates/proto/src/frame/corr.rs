//! The mark by which a client knows the answer to its frame.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;

use super::error::FrameError;
use super::json::Json;
use crate::limits::MAX_CORR_BYTES;

/// A string of at most [`MAX_CORR_BYTES`] bytes that an answer repeats.
///
/// Held as the JSON its sender wrote, a slice of the frame, so that repeating it is a copy. Two
/// are equal when they are written the same.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Corr(Bytes);

impl Corr {
    /// The mark that is `text`, if it is not too long.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let json = serde_json::to_vec(text).ok()?;
        (text.len() <= MAX_CORR_BYTES).then(|| Self(json.into()))
    }

    /// The mark as JSON, quotes included.
    #[must_use]
    pub fn as_json(&self) -> &[u8] {
        &self.0
    }

    /// The mark itself.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        let json = std::str::from_utf8(&self.0).unwrap_or_default();
        Json::of_valid(json).text().unwrap_or_default()
    }

    /// The mark at `value`, a piece of `frame`.
    pub(super) fn read(frame: &Bytes, value: Option<Json<'_>>) -> Result<Option<Self>, FrameError> {
        let Some(value) = value.filter(|value| !value.is_null()) else { return Ok(None) };
        match value.text() {
            Some(text) if text.len() <= MAX_CORR_BYTES => {
                Ok(Some(Self(frame.slice_ref(value.raw().as_bytes()))))
            }
            _ => Err(FrameError::bad_frame(format_args!(
                "corr must be a string of at most {MAX_CORR_BYTES} bytes"
            ))),
        }
    }
}

impl fmt::Debug for Corr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}
