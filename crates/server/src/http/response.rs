//! JSON responses.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::response::Response;
use serde::Serialize;

pub(super) fn json(value: &impl Serialize) -> Response {
    raw_json(serde_json::to_vec(value).expect("response types have string keys"))
}

/// A response with JSON that is already encoded.
pub(super) fn raw_json(json: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(json));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
