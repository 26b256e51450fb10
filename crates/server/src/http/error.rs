//! What goes wrong, in the one form that every error has.

use std::fmt;
use std::time::Duration;

use axum::http::StatusCode;
use axum::http::header::{HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::response::{IntoResponse, Response};
use prombus_bus::Refusal;
use prombus_proto::{ErrorCode, FrameError};
use serde::Serialize;

use super::answer;

/// An error, answered as `{"error": sentence, "code": code}`.
#[derive(Debug)]
pub(super) struct HttpError {
    status: StatusCode,
    code: ErrorCode,
    message: String,
    retry_after: Option<Duration>,
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    error: &'a str,
    code: &'a str,
}

impl HttpError {
    /// With the status that belongs to the code.
    pub(super) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        let status = StatusCode::from_u16(code.http_status());
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self { status, code, message: message.into(), retry_after: None }
    }

    /// With another status, where HTTP has a better word for it.
    pub(super) fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    /// The same, said of something further in: `line 3: …`.
    pub(super) fn within(self, place: impl fmt::Display) -> Self {
        Self { message: format!("{place}: {}", self.message), ..self }
    }
}

impl From<Refusal> for HttpError {
    fn from(refusal: Refusal) -> Self {
        let Refusal { code, message, retry_after } = refusal;
        Self { retry_after, ..Self::new(code, message) }
    }
}

impl From<FrameError> for HttpError {
    fn from(error: FrameError) -> Self {
        Self::new(error.code, error.msg)
    }
}

impl IntoResponse for HttpError {
    fn into_response(self) -> Response {
        let body = ErrorBody { error: &self.message, code: self.code.as_str() };
        let mut response = answer::json(&body);
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(time) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(whole_seconds(time)));
        }
        response
    }
}

/// Rounded up, and at least one: whoever comes back then is not too early.
pub(super) fn whole_seconds(time: Duration) -> u64 {
    let begun = u64::from(time.subsec_nanos() > 0);
    time.as_secs().saturating_add(begun).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_to_wait_are_rounded_up() {
        for (millis, seconds) in [(0, 1), (1, 1), (999, 1), (1000, 1), (1001, 2), (5500, 6)] {
            assert_eq!(whole_seconds(Duration::from_millis(millis)), seconds, "{millis}");
        }
    }
}
