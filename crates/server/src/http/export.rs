//! `GET /export`: all events of a topic between two times, as one stream.
//!
//! It steps by `seq` and never by time: events that share a millisecond cannot be lost or doubled
//! between two steps.
//!
//! | idea | file |
//! |---|---|
//! | which events, and in what form | `selection` |
//! | gzip and zstd | `compression` |

mod compression;
mod selection;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, VARY};
use axum::http::{Method, Uri};
use axum::response::Response;
use bytes::Bytes;
use futures_util::{Stream, stream};
use prombus_bus::{Bus, ReadBudget, Refusal};
use tokio::sync::mpsc;

use self::compression::{Coding, Compressor};
use self::selection::{Form, Selection};
use super::Http;
use super::caller::Caller;
use super::error::HttpError;
use crate::auth::Action;

/// How much is read and sent in one step.
const STEP: ReadBudget = ReadBudget::of_bytes(128 << 10);
/// How many steps may be ready before they are sent.
const STEPS_AHEAD: usize = 2;

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
        Body::from_stream(export.run_ahead(first))
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
    http: Arc<Http>,
    selection: Selection,
    is_begun: bool,
    is_done: bool,
    has_event: bool,
    /// Nothing while it is at work, or where nothing is compressed.
    compressor: Option<Compressor>,
}

impl Export {
    fn new(http: Arc<Http>, selection: Selection, coding: Coding) -> Self {
        let compressor = Compressor::new(coding);
        Self { http, selection, is_begun: false, is_done: false, has_event: false, compressor }
    }

    fn bus(&self) -> &Bus {
        self.http.bus()
    }

    /// Goes on behind what is `ready`, a little ahead of the client: the next bytes are read and
    /// compressed while those before are sent.
    fn run_ahead(self, ready: Option<Bytes>) -> impl Stream<Item = Result<Bytes, Refusal>> {
        let (steps, sent) = mpsc::channel(STEPS_AHEAD);
        tokio::spawn(self.run(ready, steps));
        stream::unfold(sent, |mut sent| async move { Some((sent.recv().await?, sent)) })
    }

    async fn run(mut self, mut ready: Option<Bytes>, steps: mpsc::Sender<Result<Bytes, Refusal>>) {
        while let Some(bytes) = ready {
            if steps.send(Ok(bytes)).await.is_err() {
                return;
            }
            let next = tokio::select! {
                next = self.step() => next,
                // Events that are not wanted may go on for long, and the client may have left.
                () = steps.closed() => return,
            };
            ready = match next {
                Ok(next) => next,
                Err(error) => {
                    tracing::warn!(topic = %self.selection.topic, "an export breaks off: {error}");
                    // A client that left does not miss it.
                    let _ = steps.send(Err(error)).await;
                    return;
                }
            };
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
            // Others get their turn.
            tokio::task::yield_now().await;
        }
    }

    /// What the next events are in the form that is wanted. May be nothing before the end.
    async fn next_text(&mut self) -> Result<Vec<u8>, Refusal> {
        let mut text = Vec::new();
        if !self.is_begun {
            self.is_begun = true;
            text.extend_from_slice(self.selection.form.opening());
        }
        let Selection { topic, next, end, .. } = &self.selection;
        let events = if next < end { self.bus().read(topic, *next, STEP).await? } else { vec![] };
        text.reserve(events.iter().map(|event| event.json.len() + Form::MAX_BETWEEN).sum());
        for event in &events {
            if event.seq >= self.selection.end {
                break;
            }
            if self.selection.wants(event) {
                self.selection.form.append(&mut text, event, self.has_event);
                self.has_event = true;
            }
        }
        self.selection.next = match events.last() {
            Some(last) => last.seq.next(),
            // What is gone by now was forgotten meanwhile.
            None => self.selection.end,
        };
        if self.selection.next >= self.selection.end {
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
