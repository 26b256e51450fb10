//! Responses with JSON or with counted bytes.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::response::Response;
use bytes::Bytes;
use prombus_bus::Share;
use serde::Serialize;

pub(super) fn json(value: &impl Serialize) -> Response {
    raw_json(serde_json::to_vec(value).expect("response types have string keys"))
}

/// A response with JSON whose memory counts in `room` until it is sent.
pub(super) fn counted_json(value: &impl Serialize, room: Share) -> Response {
    let json = serde_json::to_vec(value).expect("response types have string keys");
    raw_json(counted(json, room))
}

/// A response with JSON that is already encoded.
pub(super) fn raw_json(json: impl Into<Body>) -> Response {
    let mut response = Response::new(json.into());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Returns `bytes`, whose memory counts in `room` until they are sent.
pub(super) fn counted(bytes: Vec<u8>, mut room: Share) -> Bytes {
    room.set(bytes.capacity());
    Bytes::from_owner(CountedBytes { bytes, _room: room })
}

struct CountedBytes {
    bytes: Vec<u8>,
    _room: Share,
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
