//! Errors, which all have the same JSON form.

use std::fmt;
use std::time::Duration;

use axum::http::StatusCode;
use axum::http::header::{HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::response::{IntoResponse, Response};
use prombus_bus::Refusal;
use prombus_proto::{ErrorCode, FrameError};
use serde::Serialize;

use super::response;

/// An error response: `{"error": message, "code": code}`.
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
    /// An error with the default status of its code.
    pub(super) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        let status = StatusCode::from_u16(code.http_status());
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self { status, code, message: message.into(), retry_after: None }
    }

    /// Replaces the status where HTTP has a more specific one.
    pub(super) fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    /// Prefixes the message: `line 3: …`.
    pub(super) fn with_context(self, context: impl fmt::Display) -> Self {
        Self { message: format!("{context}: {}", self.message), ..self }
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
        let mut response = response::json(&body);
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(delay) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(whole_seconds(delay)));
        }
        response
    }
}

/// Rounds up to at least one second, so that a client never retries too early.
fn whole_seconds(delay: Duration) -> u64 {
    let started = u64::from(delay.subsec_nanos() > 0);
    delay.as_secs().saturating_add(started).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_retry_after_up() {
        for (millis, seconds) in [(0, 1), (1, 1), (999, 1), (1000, 1), (1001, 2), (5500, 6)] {
            assert_eq!(whole_seconds(Duration::from_millis(millis)), seconds, "{millis}");
        }
    }
}
