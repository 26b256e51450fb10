//! Why an HTTP request failed, and whether retrying helps.

use std::error::Error;
use std::time::Duration;

use hyper::StatusCode;
use prombus_proto::ErrorCode;
use serde::Deserialize;
use thiserror::Error;

use crate::transport::AddressError;

/// How much of a foreign response an error contains.
const MAX_TEXT_CHARS: usize = 200;

/// Why an HTTP request failed.
#[derive(Debug, Error)]
pub enum HttpFailure {
    /// The server cannot be reached.
    #[error(transparent)]
    NotReached(#[from] AddressError),
    /// The request was not sent.
    #[error("{0} contains characters that HTTP does not allow")]
    NotSendable(&'static str),
    /// The server refused the request.
    #[error("{code}: {message}")]
    Refused {
        /// The HTTP status.
        status: StatusCode,
        /// The stable code.
        code: String,
        /// An explanation for people.
        message: String,
        /// The `Retry-After` header.
        retry_after: Option<Duration>,
    },
    /// Something other than a Prombus server answered, such as a proxy.
    #[error("{url} answered {status}: {text}")]
    Foreign {
        /// The server's URL.
        url: String,
        /// The HTTP status.
        status: StatusCode,
        /// The start of the body.
        text: String,
        /// The `Retry-After` header.
        retry_after: Option<Duration>,
    },
    /// The response does not have the expected form.
    #[error("unexpected response from the server: {0}")]
    NotUnderstood(String),
    /// The connection was lost before the response was complete.
    #[error("connection lost: {0}")]
    Lost(String),
}

#[derive(Deserialize)]
struct ErrorBody {
    error: String,
    code: String,
}

impl HttpFailure {
    /// Reads the body of an unsuccessful response.
    pub(super) fn refused(
        url: &str,
        status: StatusCode,
        retry_after: Option<u64>,
        body: &[u8],
    ) -> Self {
        let retry_after = retry_after.map(Duration::from_secs);
        match serde_json::from_slice(body) {
            Ok(ErrorBody { error, code }) => {
                HttpFailure::Refused { status, code, message: error, retry_after }
            }
            Err(_) => {
                let text = String::from_utf8_lossy(body);
                let text = text.trim().chars().take(MAX_TEXT_CHARS).collect();
                HttpFailure::Foreign { url: url.to_owned(), status, text, retry_after }
            }
        }
    }

    pub(super) fn lost(error: &hyper::Error) -> Self {
        let mut reason = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            reason += &format!(": {error}");
            cause = error.source();
        }
        HttpFailure::Lost(reason)
    }

    /// Returns the error for a response that cannot be parsed.
    #[must_use]
    pub fn not_understood(error: &serde_json::Error) -> Self {
        HttpFailure::NotUnderstood(error.to_string())
    }

    /// Returns how long the server asks to wait, if it asks for a retry. It has not carried out
    /// the request then.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            HttpFailure::Refused { status, retry_after, .. }
            | HttpFailure::Foreign { status, retry_after, .. } => {
                let means_later = [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE];
                retry_after.filter(|_| means_later.contains(status))
            }
            _ => None,
        }
    }

    /// Returns the server's message if a rate limit refused the request.
    #[must_use]
    pub fn rate_limit(&self) -> Option<&str> {
        match self {
            HttpFailure::Refused { code, message, .. }
                if ErrorCode::parse(code) == Some(ErrorCode::RateLimited) =>
            {
                Some(message)
            }
            _ => None,
        }
    }

    /// Returns `true` if it is certain that the request changed nothing.
    #[must_use]
    pub fn had_no_effect(&self) -> bool {
        match self {
            HttpFailure::NotReached(_) | HttpFailure::NotSendable(_) => true,
            HttpFailure::Refused { status, .. } | HttpFailure::Foreign { status, .. } => {
                status.is_client_error()
            }
            HttpFailure::NotUnderstood(_) | HttpFailure::Lost(_) => false,
        }
    }

    /// Returns `true` if the same request may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            HttpFailure::Lost(_) | HttpFailure::NotReached(AddressError::Unreachable { .. }) => {
                true
            }
            HttpFailure::Refused { code, .. } => {
                ErrorCode::parse(code).is_some_and(ErrorCode::is_retryable)
            }
            HttpFailure::Foreign { status, .. } => matches!(status.as_u16(), 429 | 502..=504),
            _ => false,
        }
    }

    /// Returns the number of the line that the server rejected, starting at 1, and the reason.
    #[must_use]
    pub fn rejected_line(&self) -> Option<(usize, &str)> {
        let HttpFailure::Refused { message, .. } = self else { return None };
        let (line, reason) = message.strip_prefix("line ")?.split_once(": ")?;
        line.parse().ok().filter(|line| *line > 0).map(|line| (line, reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16, retry_after: Option<u64>, body: &str) -> HttpFailure {
        let status = StatusCode::from_u16(status).unwrap();
        HttpFailure::refused("http://bus", status, retry_after, body.as_bytes())
    }

    #[test]
    fn shows_the_servers_message() {
        let ours = refused(404, None, r#"{"error":"nothing is there","code":"unknown_topic"}"#);
        assert_eq!(ours.to_string(), "unknown_topic: nothing is there");
        assert!(!ours.is_retryable());
        let foreign = refused(502, None, "<h1>Bad Gateway</h1>\n");
        assert_eq!(
            foreign.to_string(),
            "http://bus answered 502 Bad Gateway: <h1>Bad Gateway</h1>"
        );
        assert!(foreign.is_retryable());
    }

    #[test]
    fn waits_only_if_the_server_says_how_long() {
        let limited = r#"{"error":"topic publish rate exceeded","code":"rate_limited"}"#;
        assert_eq!(refused(429, Some(3), limited).retry_after(), Some(Duration::from_secs(3)));
        assert_eq!(refused(429, None, limited).retry_after(), None);
        assert_eq!(refused(413, Some(3), limited).retry_after(), None);
        let full = refused(503, None, r#"{"error":"full","code":"storage_unavailable"}"#);
        assert!(full.is_retryable() && full.retry_after().is_none());
        let stopping = r#"{"error":"about to stop","code":"shutting_down"}"#;
        assert!(refused(503, None, stopping).is_retryable());
        assert!(refused(429, None, limited).had_no_effect());
        assert!(!refused(503, None, stopping).had_no_effect());
    }

    #[test]
    fn finds_the_rejected_line() {
        let line = |error: &str| {
            let body = format!(r#"{{"error":"{error}","code":"bad_frame"}}"#);
            let failure = refused(400, None, &body);
            failure.rejected_line().map(|(line, reason)| (line, reason.to_owned()))
        };
        assert_eq!(line("line 17: no: payload"), Some((17, "no: payload".to_owned())));
        for other in ["line 0: x", "line: x", "line x: y", "the line 3: x", "line 3 x"] {
            assert_eq!(line(other), None, "{other}");
        }
    }
}
