//! `GET /stream`: a topic's events as they come, as server-sent events.

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
use prombus_bus::{Deficit, FeedEvent, Follower, Limit, ReadBudget, Refusal, StartAt};
use prombus_proto::{ErrorCode, EventId};
use tokio::sync::watch;
use tokio::time::Instant;

use super::caller::Caller;
use super::error::HttpError;
use super::query::Query;
use super::{Http, Peer, start};
use crate::auth::Action;

/// The most that is sent in one step.
const STEP: ReadBudget = ReadBudget { events: 1000, bytes: 64 << 10 };
/// How often something is sent where nothing happens, so that nobody takes the connection for dead.
const QUIET_TIME: Duration = Duration::from_secs(15);
/// Says how long a browser waits before it comes back, in milliseconds.
const GREETING: &[u8] = b"retry: 1000\n\n";
const SIGN_OF_LIFE: &[u8] = b": still here\n\n";

pub(super) async fn get(
    State(http): State<Arc<Http>>,
    Extension(peer): Extension<Arc<Peer>>,
    caller: Caller,
    method: Method,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, HttpError> {
    let [from, ts, after] = start::NAMES;
    let query = Query::read(&uri, &["topic", from, ts, after])?;
    let topic = query.topic()?;
    let asked = start::read(&query, StartAt::Latest, &["latest", "earliest", "ts", "afterId"])?;
    // Where somebody comes back, it matters where it was, and not where it once began.
    let start = last_event(&headers)?.map_or(asked, StartAt::AfterId);
    caller.may(Action::Subscribe(&topic))?;
    let follower = http.bus().follow(&topic, &start).await?;
    let body = if method == Method::HEAD {
        Body::empty()
    } else {
        let live = Live {
            follower,
            limit: peer.connection.limit.clone(),
            stopping: http.stopping.clone(),
            ends_at: caller.rights_last().map(|time| Instant::now() + time),
            is_greeted: false,
            has_token: false,
        };
        Body::from_stream(stream::try_unfold(live, |mut live| async move {
            Ok::<_, Refusal>(live.step().await?.map(|bytes| (bytes, live)))
        }))
    };
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// The id in `Last-Event-ID`; a browser that had no event yet sends none or an empty one.
fn last_event(headers: &HeaderMap) -> Result<Option<EventId>, HttpError> {
    let Some(value) = headers.get("last-event-id").filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let wrong = |reason: String| {
        HttpError::new(ErrorCode::BadFrame, format!("the header Last-Event-ID is wrong: {reason}"))
    };
    let text =
        std::str::from_utf8(value.as_bytes()).map_err(|_| wrong("it is not UTF-8".to_owned()))?;
    EventId::new(text).map(Some).map_err(|reason| wrong(reason.to_string()))
}

/// A stream under way.
struct Live {
    follower: Follower,
    limit: Limit,
    stopping: watch::Receiver<bool>,
    /// When the caller's token runs out.
    ends_at: Option<Instant>,
    is_greeted: bool,
    /// Whether the token for the next event was taken.
    has_token: bool,
}

impl Live {
    /// The next bytes; nothing where the stream ends.
    async fn step(&mut self) -> Result<Option<Bytes>, Refusal> {
        if !self.is_greeted {
            self.is_greeted = true;
            return Ok(Some(Bytes::from_static(GREETING)));
        }
        let (ends_at, mut stopping) = (self.ends_at, self.stopping.clone());
        let rights_end = async {
            match ends_at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // An error says that the server is gone, which is the same.
            _ = stopping.wait_for(|stop| *stop) => Ok(None),
            () = rights_end => Ok(None),
            events = self.next_events() => Ok(Some(frames(&events?))),
            () = tokio::time::sleep(QUIET_TIME) => Ok(Some(Bytes::from_static(SIGN_OF_LIFE))),
        }
    }
}

impl Live {
    /// Deliveries take tokens, and wait where there are none. Given up at any time, nothing is
    /// lost: neither an event nor a token.
    async fn next_events(&mut self) -> Result<Vec<FeedEvent>, Refusal> {
        let now = || Instant::now().into_std();
        while !self.has_token {
            match self.limit.try_consume(1, now()) {
                Ok(()) => self.has_token = true,
                Err(Deficit::Wait(time)) => tokio::time::sleep(time).await,
                Err(Deficit::Never) => std::future::pending().await,
            }
        }
        let more = self.limit.standing(now()).map_or(u64::MAX, |standing| standing.available);
        let most = usize::try_from(more.saturating_add(1)).unwrap_or(usize::MAX);
        let budget = ReadBudget { events: STEP.events.min(most), ..STEP };
        let events = self.follower.page(budget).await?;
        // Nobody else takes from this bucket meanwhile: the connection is busy with this stream.
        let _ = self.limit.try_consume(events.len() as u64 - 1, now());
        self.has_token = false;
        Ok(events)
    }
}

fn frames(events: &[FeedEvent]) -> Bytes {
    let mut text = Vec::new();
    for event in events {
        text.extend_from_slice(format!("id: {}\ndata: ", event.id).as_bytes());
        event.write_json(&mut text);
        text.extend_from_slice(b"\n\n");
    }
    text.into()
}
