//! Request headers that become headers of the event: `X-Event-Name: v` becomes `name: v`.

use axum::http::HeaderMap;
use prombus_proto::limits::MAX_HEADERS;
use prombus_proto::{ErrorCode, Headers};

use crate::http::error::HttpError;

const PREFIX: &str = "x-event-";

/// Reads the event's headers. Their names are lower-case.
pub(super) fn parse(request: &HeaderMap) -> Result<Headers, HttpError> {
    let mut headers: Vec<(String, String)> = Vec::new();
    for (request_name, value) in request {
        let Some(name) = request_name.as_str().strip_prefix(PREFIX) else { continue };
        let invalid = |reason: &str| {
            HttpError::new(ErrorCode::BadFrame, format!("the header {request_name} {reason}"))
        };
        if name.is_empty() {
            return Err(invalid("has no name after the prefix"));
        }
        if headers.iter().any(|(known, _)| known == name) {
            return Err(invalid("is given more than once"));
        }
        let value = std::str::from_utf8(value.as_bytes()).map_err(|_| invalid("is not UTF-8"))?;
        headers.push((name.to_owned(), value.to_owned()));
    }
    Headers::new(headers).ok_or_else(|| {
        let message = format!("an event has at most {MAX_HEADERS} headers");
        HttpError::new(ErrorCode::BadFrame, message)
    })
}
