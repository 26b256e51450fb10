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

/// How far each byte moves the deadline of the next: a client that sends a byte now and then must not occupy
/// a connection forever.
const TIME_PER_BYTE: Duration = Duration::from_millis(1);

pub(super) struct RequestBody {
    chunks: BodyDataStream,
    limit: usize,
    remaining: usize,
    /// How long the body may stall.
    stall_timeout: Duration,
    /// The time left to the next chunk. Does not run while we do not read.
    patience: Duration,
}

impl RequestBody {
    /// Wraps a body that has not been read yet.
    ///
    /// # Errors
    ///
    /// If the body declares a size above `limit`, or an encoding.
    pub(super) fn new(
        headers: &HeaderMap,
        body: Body,
        limit: usize,
        stall_timeout: Duration,
    ) -> Result<Self, HttpError> {
        let encodings = headers.get_all(CONTENT_ENCODING).iter();
        if encodings.into_iter().any(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity")) {
            let message = "Content-Encoding is not supported: send the body unencoded";
            return Err(HttpError::new(ErrorCode::BadFrame, message)
                .with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE));
        }
        if body.size_hint().lower() > limit as u64 {
            return Err(too_large(limit));
        }
        let chunks = body.into_data_stream();
        Ok(Self { chunks, limit, remaining: limit, stall_timeout, patience: stall_timeout })
    }

    /// Waits for the next chunk. Returns `None` at the end of the body.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, HttpError> {
        self.next_by(None).await
    }

    /// Like [`RequestBody::next`], but waits until `deadline` at most.
    pub(super) async fn next_by(
        &mut self,
        deadline: Option<Instant>,
    ) -> Result<Option<Bytes>, HttpError> {
        let asked_at = Instant::now();
        let stalled_at = asked_at + self.patience;
        let deadline = deadline.map_or(stalled_at, |deadline| deadline.min(stalled_at));
        let chunk = match timeout_at(deadline, self.chunks.next()).await {
            Ok(Some(Ok(chunk))) => chunk,
            Ok(None) => return Ok(None),
            Ok(Some(Err(error))) => {
                let message = format!("the body is incomplete: {error}");
                return Err(HttpError::new(ErrorCode::BadFrame, message));
            }
            Err(_) => return Err(too_slow(self.stall_timeout)),
        };
        self.remaining =
            self.remaining.checked_sub(chunk.len()).ok_or_else(|| too_large(self.limit))?;
        let bytes = u32::try_from(chunk.len()).unwrap_or(u32::MAX);
        let left = self.patience.saturating_sub(asked_at.elapsed());
        // A fast start is no credit for a slow end.
        self.patience = (left + TIME_PER_BYTE.saturating_mul(bytes)).min(self.stall_timeout);
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

fn too_slow(stall_timeout: Duration) -> HttpError {
    let message = format!(
        "the body arrived too slowly: no data for {stall_timeout:?}, less than 1000 bytes per second, or too slow \
         while others waited for its memory"
    );
    HttpError::new(ErrorCode::BadFrame, message).with_status(StatusCode::REQUEST_TIMEOUT)
}
