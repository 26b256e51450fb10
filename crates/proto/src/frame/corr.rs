//! The correlation id by which a client matches an answer to its frame.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;

use super::error::FrameError;
use super::json::Json;
use crate::limits::MAX_CORR_BYTES;

/// A correlation id: a string of at most [`MAX_CORR_BYTES`] bytes that the answer repeats.
///
/// Stored as the sender's JSON, a slice of the frame, so that repeating it is a plain copy. Equality
/// compares that JSON: the same text with different escapes is not equal.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Corr(Bytes);

impl Corr {
    /// Creates a correlation id. Returns `None` if `text` exceeds [`MAX_CORR_BYTES`].
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let json = serde_json::to_vec(text).ok()?;
        (text.len() <= MAX_CORR_BYTES).then(|| Self(json.into()))
    }

    /// Returns the JSON string, quotes included.
    #[must_use]
    pub fn as_json(&self) -> &[u8] {
        &self.0
    }

    /// Returns the decoded text.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        let json = std::str::from_utf8(&self.0).unwrap_or_default();
        Json::from_valid(json).text().unwrap_or_default()
    }

    /// Reads the id from `value`, which must be a slice of `frame`.
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
