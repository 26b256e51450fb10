//! Request headers that become the event's: `X-Event-Name: v` is `name: v`.

use axum::http::HeaderMap;
use prombus_proto::limits::MAX_HEADERS;
use prombus_proto::{ErrorCode, Headers};

use crate::http::error::HttpError;

const PREFIX: &str = "x-event-";

/// The event's headers, by their names in lower case.
pub(super) fn read(request: &HeaderMap) -> Result<Headers, HttpError> {
    let mut headers: Vec<(String, String)> = Vec::new();
    for (written, value) in request {
        let Some(name) = written.as_str().strip_prefix(PREFIX) else { continue };
        let wrong = |reason: &str| {
            HttpError::new(ErrorCode::BadFrame, format!("the header {written} {reason}"))
        };
        if name.is_empty() {
            return Err(wrong("has no name behind the prefix"));
        }
        if headers.iter().any(|(known, _)| known == name) {
            return Err(wrong("is there more than once"));
        }
        let value = std::str::from_utf8(value.as_bytes()).map_err(|_| wrong("is not UTF-8"))?;
        headers.push((name.to_owned(), value.to_owned()));
    }
    Headers::new(headers).ok_or_else(|| {
        let message = format!("an event has at most {MAX_HEADERS} headers");
        HttpError::new(ErrorCode::BadFrame, message)
    })
}
