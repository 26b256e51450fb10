//! `GET /stream`: follows a topic with server-sent events.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderValue};
use axum::http::{Method, Uri};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use prombus_bus::{
    ConnectionLimit, Deficit, Followed, Follower, ReadBudget, Refusal, Share, StartAt,
};
use prombus_proto::{ErrorCode, EventId, Topic};
use tokio::time::Instant;

use super::error::HttpError;
use super::query::QueryParams;
use super::request_grant::{TicketGrant, WatchedGrant};
use super::{HttpState, Peer, damaged, response, start};
use crate::auth::Action;

/// The most that is sent at once.
const CHUNK: ReadBudget = ReadBudget { events: 1000, bytes: 64 << 10 };
/// Keeps proxies and clients from closing an idle connection.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEP_ALIVE: &[u8] = b": still here\n\n";
/// Sent first: milliseconds that a browser waits before it reconnects.
const RETRY: &[u8] = b"retry: 1000\n\n";

pub(super) async fn get(
    State(http): State<Arc<HttpState>>,
    Extension(peer): Extension<Arc<Peer>>,
    TicketGrant(grant): TicketGrant,
    method: Method,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, HttpError> {
    let [from, ts, after, seq] = start::PARAMETERS;
    let query = QueryParams::parse(&uri, &["topic", from, ts, after, seq, "ticket"])?;
    let topic = query.topic()?;
    let allowed = ["latest", "earliest", "ts", "afterId", "seq"];
    let requested = start::parse(&query, StartAt::Latest, &allowed)?;
    // A browser reconnects with its original query: the last event that it received counts.
    let start = last_event_id(&headers)?.map_or(requested, StartAt::AfterId);
    grant.require(Action::Read(&topic))?;
    let follower = http.bus().follow(&topic, &start).await?;
    let body = if method == Method::HEAD {
        Body::empty()
    } else {
        let events = EventStream {
            pages: Pages {
                follower,
                limit: peer.connection.limit.clone(),
                room: http.bus().memory().responses.share(),
                owed: 1,
            },
            grant: grant.into_watched(),
            topic,
            sent_retry: false,
        };
        Body::from_stream(stream::try_unfold(events, |mut events| async move {
            Ok::<_, Refusal>(events.next_chunk().await?.map(|bytes| (bytes, events)))
        }))
    };
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// Returns the id in `Last-Event-ID`. A browser that has not received an event yet sends none or an
/// empty one.
fn last_event_id(headers: &HeaderMap) -> Result<Option<EventId>, HttpError> {
    let Some(value) = headers.get("last-event-id").filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let invalid = |reason: String| {
        HttpError::new(
            ErrorCode::BadFrame,
            format!("the header Last-Event-ID is invalid: {reason}"),
        )
    };
    let text =
        std::str::from_utf8(value.as_bytes()).map_err(|_| invalid("it is not UTF-8".to_owned()))?;
    EventId::new(text).map(Some).map_err(|reason| invalid(reason.to_string()))
}

/// A running stream.
struct EventStream {
    pages: Pages,
    /// The stream ends with the rights of its request.
    grant: WatchedGrant,
    topic: Topic,
    sent_retry: bool,
}

/// The events of a stream, as fast as the rate limit allows.
struct Pages {
    follower: Follower,
    limit: ConnectionLimit,
    /// Always empty: a chunk counts in a share of its own, which lasts until it is sent.
    room: Share,
    /// Tokens to take before the next read: one for its first event, and those that were missing for the
    /// events of the last one.
    owed: u64,
}

impl EventStream {
    /// Returns the next bytes of the response, or `None` at its end.
    async fn next_chunk(&mut self) -> Result<Option<Bytes>, Refusal> {
        if !self.sent_retry {
            self.sent_retry = true;
            return Ok(Some(Bytes::from_static(RETRY)));
        }
        let Self { grant, topic, pages, .. } = self;
        tokio::select! {
            // First, so that a busy stream ends as well.
            biased;
            () = grant.ended(Action::Read(topic)) => Ok(None),
            page = pages.next_page() => {
                Ok(Some(response::counted(encode(&page?), pages.room.budget().share())))
            }
            () = tokio::time::sleep(KEEP_ALIVE_INTERVAL) => Ok(Some(Bytes::from_static(KEEP_ALIVE))),
        }
    }
}

impl Pages {
    /// Takes a token per event and waits until there is one. Cancel-safe: dropping the future loses
    /// neither an event nor a token.
    async fn next_page(&mut self) -> Result<Followed, Refusal> {
        let now = || Instant::now().into_std();
        while self.owed > 0 {
            match self.limit.try_deliver(1, now()) {
                Ok(()) => self.owed -= 1,
                Err(Deficit::Wait(time)) => tokio::time::sleep(time).await,
                Err(Deficit::Never) => std::future::pending().await,
            }
        }
        let affordable = self.limit.deliverable(now()).saturating_add(1);
        let affordable = usize::try_from(affordable).unwrap_or(usize::MAX);
        let budget = ReadBudget {
            events: CHUNK.events.min(affordable),
            bytes: CHUNK.bytes.min(self.room.allowance()),
        };
        let page = self.follower.page(budget).await?;
        if let Followed::Events(events) = &page {
            let more = events.len() as u64 - 1;
            // Other connections of the principal may have taken the tokens in the meantime.
            let is_paid = self.limit.try_deliver(more, now()).is_ok();
            self.owed = if is_paid { 1 } else { 1 + more };
        }
        Ok(page)
    }
}

/// Damage and removed events have event types of their own, which handlers of events do not see, and no
/// id: a client that reconnects is told again.
fn encode(page: &Followed) -> Vec<u8> {
    let mut text = Vec::new();
    match page {
        Followed::Events(events) => {
            for event in events {
                text.extend_from_slice(format!("id: {}\ndata: ", event.id).as_bytes());
                event.write_json(&mut text);
                text.extend_from_slice(b"\n\n");
            }
        }
        Followed::Damaged(range) => {
            text.extend_from_slice(b"event: damaged\ndata: ");
            damaged::append_json(&mut text, *range);
            text.extend_from_slice(b"\n\n");
        }
        Followed::Removed { next } => {
            let gap = format!("event: gap\ndata: {{\"next_seq\":{next}}}\n\n");
            text.extend_from_slice(gap.as_bytes());
        }
    }
    text
}
