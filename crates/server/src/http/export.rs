//! `GET /export`: all events of a topic between two times, as one stream.
//!
//! An export advances by `seq`, never by time, so events that share a millisecond are neither lost
//! nor repeated.
//!
//! - [`request`]: which events, and in what format
//! - [`read_ahead`]: reads them from the bus
//! - [`compression`]: gzip and zstd

mod compression;
mod read_ahead;
mod request;

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, VARY};
use axum::http::{Method, Uri};
use axum::response::Response;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use prombus_bus::{ReadPage, Refusal, Share};
use prombus_proto::ErrorCode;

use self::compression::{Compressor, ContentCoding};
use self::read_ahead::ReadAhead;
use self::request::{AtDamage, ExportFormat, ExportRange, ExportRequest};
use super::error::HttpError;
use super::request_grant::{RequestGrant, WatchedGrant};
use super::{HttpState, Peer, response};
use crate::auth::Action;

pub(super) async fn get(
    State(http): State<Arc<HttpState>>,
    Extension(peer): Extension<Arc<Peer>>,
    grant: RequestGrant,
    method: Method,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, HttpError> {
    let request = ExportRequest::parse(&uri, http.now())?;
    grant.require(Action::Read(&request.topic))?;
    let coding = ContentCoding::negotiate(&headers);
    let range = request.locate(http.bus()).await?;
    let content_type = range.format.content_type();
    let body = if method == Method::HEAD {
        Body::empty()
    } else {
        let mut export = Export::new(http, peer, range, coding, grant.into_watched());
        // Reads the first chunk before answering, so that an export that cannot start is an error
        // response and not a broken stream.
        let first = export.next_chunk().await?;
        let rest = stream::try_unfold(export, |mut export| async move {
            let next = export.next_chunk().await.inspect_err(|error| {
                tracing::warn!(topic = %export.range.topic, "export aborted: {error}");
            })?;
            Ok(next.map(|bytes| (bytes, export)))
        });
        Body::from_stream(stream::iter(first.map(Ok::<_, Refusal>)).chain(rest))
    };
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    if let Some(name) = coding.name() {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(name));
    }
    Ok(response)
}

/// A running export.
struct Export {
    range: ExportRange,
    events: ReadAhead,
    stage: Stage,
    /// `None` without compression, and while a blocking thread uses the compressor.
    compressor: Option<Compressor>,
    /// The memory of the page that is being sent.
    room: Share,
    /// Why the export ends early, once the events before it are sent.
    failure: Option<Refusal>,
    /// The export ends with the rights of its request.
    grant: WatchedGrant,
    peer: Arc<Peer>,
}

/// What has been written so far.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Nothing,
    Opening,
    Events,
    Closing,
}

impl Export {
    fn new(
        http: Arc<HttpState>,
        peer: Arc<Peer>,
        range: ExportRange,
        coding: ContentCoding,
        grant: WatchedGrant,
    ) -> Self {
        let room = http.bus().memory().responses.share();
        let events = ReadAhead::new(http, range.topic.clone(), range.first, range.end);
        let compressor = Compressor::new(coding);
        let stage = Stage::Nothing;
        Self { range, events, stage, compressor, room, failure: None, grant, peer }
    }

    /// Returns the next bytes of the response, or `None` at its end.
    async fn next_chunk(&mut self) -> Result<Option<Bytes>, Refusal> {
        while self.stage != Stage::Closing {
            if let Some(failure) = self.failure.take() {
                self.peer.accepted.flushed.wait().await;
                return Err(failure);
            }
            let bytes = match (self.next_text().await, self.compressor.take()) {
                (Ok(text), None) => text,
                (Ok(text), Some(compressor)) => self.compress(compressor, text).await?,
                // The client gets all events before the failure first.
                (Err(failure), compressor) if self.stage == Stage::Events => {
                    self.failure = Some(failure);
                    let rest = compressor.map_or(Ok(Vec::new()), |mut it| it.flush());
                    rest.map_err(|error| compression::failed(&error))?
                }
                (Err(failure), _) => return Err(failure),
            };
            if !bytes.is_empty() {
                let next = self.room.budget().share();
                let room = std::mem::replace(&mut self.room, next);
                return Ok(Some(response::counted(bytes, room)));
            }
        }
        Ok(None)
    }

    /// Formats the next page of events. The text is empty if none of them is selected.
    async fn next_text(&mut self) -> Result<Vec<u8>, Refusal> {
        let format = self.range.format;
        if self.grant.has_ended(Action::Read(&self.range.topic)) {
            let message =
                "the token has expired or was removed; continue with afterId and a new token";
            return Err(Refusal::new(ErrorCode::Unauthorized, message));
        }
        let (page, room) = self.events.next().await?;
        self.room = room;
        let mut text = Vec::new();
        if self.stage == Stage::Nothing {
            self.stage = Stage::Opening;
            text.extend_from_slice(format.opening());
        }
        let events = match page {
            ReadPage::Events(events) => events,
            ReadPage::Damaged(range) if self.range.at_damage == AtDamage::Skip => {
                format.append_damaged(&mut text, range, self.stage == Stage::Events);
                self.stage = Stage::Events;
                return Ok(text);
            }
            ReadPage::Damaged(range) => {
                let mut refusal = range.refusal(&self.range.topic);
                refusal.message.push_str("; add damaged=skip to continue behind the damage");
                return Err(refusal);
            }
        };
        text.reserve(events.iter().map(|event| event.json.len() + ExportFormat::OVERHEAD).sum());
        for event in events.iter().filter(|event| self.range.includes(event)) {
            format.append(&mut text, event, self.stage == Stage::Events);
            self.stage = Stage::Events;
        }
        if events.is_empty() {
            text.extend_from_slice(format.closing());
            self.stage = Stage::Closing;
        }
        Ok(text)
    }

    /// Compresses on a blocking thread, so that other connections do not wait for it.
    async fn compress(
        &mut self,
        mut compressor: Compressor,
        text: Vec<u8>,
    ) -> Result<Vec<u8>, Refusal> {
        let is_last = self.stage == Stage::Closing;
        let compressed = tokio::task::spawn_blocking(move || {
            if is_last {
                return (compressor.finish(&text), None);
            }
            (compressor.write(&text), Some(compressor))
        });
        match compressed.await {
            Ok((Ok(bytes), compressor)) => {
                self.compressor = compressor;
                Ok(bytes)
            }
            Ok((Err(error), _)) => Err(compression::failed(&error)),
            Err(error) => Err(compression::failed(&error)),
        }
    }
}
