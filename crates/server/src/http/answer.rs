//! Answers that are JSON.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::response::Response;
use serde::Serialize;

/// What `value` is as JSON.
pub(super) fn json(value: &impl Serialize) -> Response {
    written(serde_json::to_vec(value).expect("what we answer has text as keys"))
}

/// JSON that is written already.
pub(super) fn written(json: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(json));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
