//! Errors of reading a frame.

use std::fmt;

use super::corr::Corr;
use super::json::Malformed;
use crate::ErrorCode;

/// A frame that cannot be accepted, with everything the ERR answer needs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {msg}")]
pub struct FrameError {
    /// The stable error code.
    pub code: ErrorCode,
    /// Names the field, what is wrong with it, and what would be valid.
    pub msg: String,
    /// The frame's `corr`; `None` if it has none or it could not be read.
    pub corr: Option<Corr>,
}

impl FrameError {
    pub(super) fn new(code: ErrorCode, msg: impl fmt::Display) -> Self {
        Self { code, msg: msg.to_string(), corr: None }
    }

    pub(super) fn bad_frame(msg: impl fmt::Display) -> Self {
        Self::new(ErrorCode::BadFrame, msg)
    }

    pub(super) fn bad_json(msg: impl fmt::Display) -> Self {
        Self::new(ErrorCode::BadJson, format_args!("the frame is not JSON: {msg}"))
    }

    /// Prefixes the message with the path of an enclosing field: `ts …` becomes `opts.ts …`.
    pub(super) fn within(self, path: impl fmt::Display) -> Self {
        Self { msg: format!("{path}.{}", self.msg), ..self }
    }

    pub(super) fn answering(self, corr: Option<Corr>) -> Self {
        Self { corr, ..self }
    }
}

impl From<Malformed> for FrameError {
    fn from(malformed: Malformed) -> Self {
        match malformed {
            Malformed::Syntax { .. } => Self::bad_json(malformed),
            Malformed::TooDeep { .. } => Self::bad_frame(format_args!("the frame is {malformed}")),
        }
    }
}
