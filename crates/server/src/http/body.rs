//! A request's body, as it comes in: at most so many bytes, and not too slowly.

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

/// How long nothing may come of a body before it is given up.
const STALL_TIME: Duration = Duration::from_secs(30);
/// How much time each byte adds to that for the whole of it: who sends a byte now and then must
/// not keep a place for ever.
const TIME_PER_BYTE: Duration = Duration::from_millis(1);

/// A body that is being read.
pub(super) struct RequestBody {
    chunks: BodyDataStream,
    most: usize,
    left: usize,
    /// When all that came until now is too slow.
    due: Option<Instant>,
}

impl RequestBody {
    /// Refuses a body that says that it is larger than `most`, or encoded, before it is read.
    pub(super) fn new(headers: &HeaderMap, body: Body, most: usize) -> Result<Self, HttpError> {
        let encodings = headers.get_all(CONTENT_ENCODING).iter();
        if encodings.into_iter().any(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity")) {
            let message = "Content-Encoding: send the body as it is, without an encoding";
            return Err(HttpError::new(ErrorCode::BadFrame, message)
                .with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE));
        }
        if body.size_hint().lower() > most as u64 {
            return Err(too_large(most));
        }
        // What says how large it is is never larger.
        let upper = body.size_hint().upper().and_then(|upper| usize::try_from(upper).ok());
        let most = upper.map_or(most, |upper| upper.min(most));
        Ok(Self { chunks: body.into_data_stream(), most, left: most, due: None })
    }

    /// The most bytes it can have.
    pub(super) fn max_bytes(&self) -> u32 {
        u32::try_from(self.most).unwrap_or(u32::MAX)
    }

    /// What came next of it. Nothing at its end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, HttpError> {
        let stalled = Instant::now() + STALL_TIME;
        let due = *self.due.get_or_insert(stalled);
        let chunk = match timeout_at(stalled.min(due), self.chunks.next()).await {
            Ok(Some(Ok(chunk))) => chunk,
            Ok(None) => return Ok(None),
            Ok(Some(Err(error))) => {
                let message = format!("the body ended too early: {error}");
                return Err(HttpError::new(ErrorCode::BadFrame, message));
            }
            Err(_) => {
                let seconds = STALL_TIME.as_secs();
                let message = format!(
                    "the body came too slowly: nothing in {seconds} seconds, or after those less \
                     than 1000 bytes a second"
                );
                return Err(HttpError::new(ErrorCode::BadFrame, message)
                    .with_status(StatusCode::REQUEST_TIMEOUT));
            }
        };
        match self.left.checked_sub(chunk.len()) {
            Some(left) => {
                self.left = left;
                let bytes = u32::try_from(chunk.len()).unwrap_or(u32::MAX);
                self.due = Some(due + TIME_PER_BYTE * bytes);
            }
            None => return Err(too_large(self.most)),
        }
        Ok(Some(chunk))
    }

    /// All of it.
    pub(super) async fn whole(mut self) -> Result<Bytes, HttpError> {
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

fn too_large(most: usize) -> HttpError {
    let message = format!("the body has more than the {most} bytes allowed");
    HttpError::new(ErrorCode::PayloadTooLarge, message)
}
