//! Why a frame is refused.

use std::fmt;

use super::corr::Corr;
use super::json::Malformed;
use crate::ErrorCode;

/// Why a frame is refused, as the ERR that answers it says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {msg}")]
pub struct FrameError {
    /// The stable word for it.
    pub code: ErrorCode,
    /// What is wrong and what would be right. Names the field.
    pub msg: String,
    /// The frame's own `corr`, where it could be read.
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

    /// The same, said of a field further in: `ts …` becomes `opts.ts …`.
    pub(super) fn within(self, path: impl fmt::Display) -> Self {
        Self { msg: format!("{path}.{}", self.msg), ..self }
    }

    pub(super) fn answering(self, corr: Option<Corr>) -> Self {
        Self { corr, ..self }
    }
}

impl From<Malformed> for FrameError {
    fn from(malformed: Malformed) -> Self {
        Self::bad_json(format_args!("{} at byte {}", malformed.what, malformed.at))
    }
}
