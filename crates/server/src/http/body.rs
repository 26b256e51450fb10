//! A request body, bounded in size and time.

use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_ENCODING, HeaderMap};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use hyper::body::Body as _;
use prombus_proto::ErrorCode;
use tokio::time::{Instant, timeout_at};

use super::error::HttpError;

/// How long a body may stall.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// How far each byte moves the deadline of the whole body: a client that sends a byte now and then
/// must not occupy a connection forever.
const TIME_PER_BYTE: Duration = Duration::from_millis(1);

pub(super) struct RequestBody {
    chunks: BodyDataStream,
    limit: usize,
    remaining: usize,
    /// Set by the first read, and moved on by every byte received.
    deadline: Option<Instant>,
}

impl RequestBody {
    /// Wraps a body that has not been read yet.
    ///
    /// # Errors
    ///
    /// If the body declares a size above `limit`, or an encoding.
    pub(super) fn new(headers: &HeaderMap, body: Body, limit: usize) -> Result<Self, HttpError> {
        let encodings = headers.get_all(CONTENT_ENCODING).iter();
        if encodings.into_iter().any(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity")) {
            let message = "Content-Encoding is not supported: send the body unencoded";
            return Err(HttpError::new(ErrorCode::BadFrame, message)
                .with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE));
        }
        if body.size_hint().lower() > limit as u64 {
            return Err(too_large(limit));
        }
        // A declared size is exact, so less room has to be reserved for it.
        let declared = body.size_hint().upper().and_then(|upper| usize::try_from(upper).ok());
        let limit = declared.map_or(limit, |declared| declared.min(limit));
        Ok(Self { chunks: body.into_data_stream(), limit, remaining: limit, deadline: None })
    }

    /// The declared size of the body, or else its limit.
    pub(super) fn max_bytes(&self) -> u32 {
        u32::try_from(self.limit).unwrap_or(u32::MAX)
    }

    /// Waits for the next chunk. Returns `None` at the end of the body.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, HttpError> {
        let stalled_at = Instant::now() + STALL_TIMEOUT;
        let deadline = *self.deadline.get_or_insert(stalled_at);
        let chunk = match timeout_at(stalled_at.min(deadline), self.chunks.next()).await {
            Ok(Some(Ok(chunk))) => chunk,
            Ok(None) => return Ok(None),
            Ok(Some(Err(error))) => {
                let message = format!("the body is incomplete: {error}");
                return Err(HttpError::new(ErrorCode::BadFrame, message));
            }
            Err(_) => return Err(too_slow()),
        };
        self.remaining =
            self.remaining.checked_sub(chunk.len()).ok_or_else(|| too_large(self.limit))?;
        let bytes = u32::try_from(chunk.len()).unwrap_or(u32::MAX);
        self.deadline = Some(deadline + TIME_PER_BYTE * bytes);
        Ok(Some(chunk))
    }

    /// Reads the whole body. Copies nothing if it arrives as one chunk.
    pub(super) async fn collect(mut self) -> Result<Bytes, HttpError> {
        let Some(first) = self.next().await? else { return Ok(Bytes::new()) };
        let Some(second) = self.next().await? else { return Ok(first) };
        let mut whole = BytesMut::from(first);
        whole.extend_from_slice(&second);
        while let Some(chunk) = self.next().await? {
            whole.extend_from_slice(&chunk);
        }
        Ok(whole.freeze())
    }
}

fn too_large(limit: usize) -> HttpError {
    let message = format!("the body exceeds the limit of {limit} bytes");
    HttpError::new(ErrorCode::PayloadTooLarge, message)
}

fn too_slow() -> HttpError {
    let message = format!(
        "the body arrived too slowly: no data for {} seconds, or less than 1000 bytes per second \
         after that",
        STALL_TIMEOUT.as_secs()
    );
    HttpError::new(ErrorCode::BadFrame, message).with_status(StatusCode::REQUEST_TIMEOUT)
}
