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
    Deficit, FeedEvent, Follower, RateLimit, ReadBudget, ReadPage, Refusal, StartAt,
};
use prombus_proto::{ErrorCode, EventId, Topic};
use tokio::time::Instant;

use super::error::HttpError;
use super::query::QueryParams;
use super::request_grant::{RequestGrant, WatchedGrant};
use super::{HttpState, Peer, damaged, start};
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
    grant: RequestGrant,
    method: Method,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, HttpError> {
    let [from, ts, after, seq] = start::PARAMETERS;
    let query = QueryParams::parse(&uri, &["topic", from, ts, after, seq])?;
    let topic = query.topic()?;
    let allowed = ["latest", "earliest", "ts", "afterId", "seq"];
    let requested = start::parse(&query, StartAt::Latest, &allowed)?;
    // A browser reconnects with its original query: the last event that it received counts.
    let start = last_event_id(&headers)?.map_or(requested, StartAt::AfterId);
    grant.require(Action::Subscribe(&topic))?;
    let follower = http.bus().follow(&topic, &start).await?;
    let body = if method == Method::HEAD {
        Body::empty()
    } else {
        let events = EventStream {
            pages: Pages { follower, limit: peer.connection.limit.clone(), has_token: false },
            grant: grant.into_watched(&http),
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
    limit: RateLimit,
    /// The rate limit's token for the next event has been taken.
    has_token: bool,
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
            () = grant.ended(Action::Subscribe(topic)) => Ok(None),
            page = pages.next_page() => Ok(Some(encode(&page?))),
            () = tokio::time::sleep(KEEP_ALIVE_INTERVAL) => Ok(Some(Bytes::from_static(KEEP_ALIVE))),
        }
    }
}

impl Pages {
    /// Takes a token per event and waits until there is one. Cancel-safe: dropping the future loses
    /// neither an event nor a token.
    async fn next_page(&mut self) -> Result<ReadPage<FeedEvent>, Refusal> {
        let now = || Instant::now().into_std();
        while !self.has_token {
            match self.limit.try_consume(1, now()) {
                Ok(()) => self.has_token = true,
                Err(Deficit::Wait(time)) => tokio::time::sleep(time).await,
                Err(Deficit::Never) => std::future::pending().await,
            }
        }
        let available = self.limit.status(now()).map_or(u64::MAX, |status| status.available);
        let affordable = usize::try_from(available.saturating_add(1)).unwrap_or(usize::MAX);
        let budget = ReadBudget { events: CHUNK.events.min(affordable), ..CHUNK };
        let page = self.follower.page(budget).await?;
        if let ReadPage::Events(events) = &page {
            // Cannot fail: this stream occupies the connection, so nothing else uses its bucket.
            let _ = self.limit.try_consume(events.len() as u64 - 1, now());
            self.has_token = false;
        }
        Ok(page)
    }
}

/// Damage has an event type of its own, which handlers of events do not see, and no id: a client that
/// reconnects is told again.
fn encode(page: &ReadPage<FeedEvent>) -> Bytes {
    let mut text = Vec::new();
    match page {
        ReadPage::Events(events) => {
            for event in events {
                text.extend_from_slice(format!("id: {}\ndata: ", event.id).as_bytes());
                event.write_json(&mut text);
                text.extend_from_slice(b"\n\n");
            }
        }
        ReadPage::Damaged(range) => {
            text.extend_from_slice(b"event: damaged\ndata: ");
            damaged::append_json(&mut text, *range);
            text.extend_from_slice(b"\n\n");
        }
    }
    text.into()
}
