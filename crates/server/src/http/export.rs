//! `GET /export`: all events of a topic between two times, as one stream.
//!
//! It steps by `seq` and never by time: events that share a millisecond cannot be lost or doubled
//! between two steps.
//!
//! | idea | file |
//! |---|---|
//! | which events, and in what form | `selection` |
//! | reading them | `pages` |
//! | gzip and zstd | `compression` |

mod compression;
mod pages;
mod selection;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, VARY};
use axum::http::{Method, Uri};
use axum::response::Response;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use prombus_bus::Refusal;

use self::compression::{Coding, Compressor};
use self::pages::Pages;
use self::selection::{Form, Selection};
use super::Http;
use super::caller::Caller;
use super::error::HttpError;
use crate::auth::Action;

pub(super) async fn get(
    State(http): State<Arc<Http>>,
    caller: Caller,
    method: Method,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, HttpError> {
    let asked = selection::Asked::read(&uri, http.now())?;
    caller.may(Action::Subscribe(&asked.topic))?;
    let coding = Coding::wanted(&headers);
    let selection = asked.locate(http.bus()).await?;
    let content_type = selection.form.content_type();
    let body = if method == Method::HEAD {
        Body::empty()
    } else {
        let mut export = Export::new(http, selection, coding);
        // What cannot be read at all is answered as an error and not as a broken stream.
        let first = export.step().await?;
        let rest = stream::try_unfold(export, |mut export| async move {
            let next = export.step().await.inspect_err(|error| {
                tracing::warn!(topic = %export.selection.topic, "an export breaks off: {error}");
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

/// An export under way.
struct Export {
    selection: Selection,
    pages: Pages,
    is_begun: bool,
    is_done: bool,
    has_event: bool,
    /// Nothing while it is at work, or where nothing is compressed.
    compressor: Option<Compressor>,
}

impl Export {
    fn new(http: Arc<Http>, selection: Selection, coding: Coding) -> Self {
        let Selection { topic, first, end, .. } = &selection;
        Self {
            pages: Pages::new(http, topic.clone(), *first, *end),
            selection,
            is_begun: false,
            is_done: false,
            has_event: false,
            compressor: Compressor::new(coding),
        }
    }

    /// The next bytes; nothing at the end.
    async fn step(&mut self) -> Result<Option<Bytes>, Refusal> {
        loop {
            if self.is_done {
                return Ok(None);
            }
            let text = self.next_text().await?;
            let bytes = match self.compressor.take() {
                None => text,
                Some(compressor) => self.compress(compressor, text).await?,
            };
            if !bytes.is_empty() {
                return Ok(Some(bytes.into()));
            }
        }
    }

    /// What the next events are in the form that is wanted. May be nothing before the end.
    async fn next_text(&mut self) -> Result<Vec<u8>, Refusal> {
        let mut text = Vec::new();
        if !self.is_begun {
            self.is_begun = true;
            text.extend_from_slice(self.selection.form.opening());
        }
        let events = self.pages.next().await?;
        text.reserve(events.iter().map(|event| event.json.len() + Form::MAX_BETWEEN).sum());
        for event in events.iter().filter(|event| self.selection.wants(event)) {
            self.selection.form.append(&mut text, event, self.has_event);
            self.has_event = true;
        }
        if events.is_empty() {
            text.extend_from_slice(self.selection.form.closing());
            self.is_done = true;
        }
        Ok(text)
    }

    /// On a thread of its own: compressing takes long, and others wait for this one.
    async fn compress(
        &mut self,
        mut compressor: Compressor,
        text: Vec<u8>,
    ) -> Result<Vec<u8>, Refusal> {
        let is_last = self.is_done;
        let compressed = tokio::task::spawn_blocking(move || {
            if is_last {
                return (compressor.last(&text), None);
            }
            (compressor.some(&text), Some(compressor))
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
