//! `GET /topics`, and `GET` and `PUT /topics/T`: what topics there are, and their settings.

mod settings;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::Uri;
use axum::response::Response;
use prombus_bus::{Bounds, TopicOverview};
use prombus_proto::{ErrorCode, Seq, Topic};
use serde::Serialize;

use self::settings::{Own, Rules};
use super::body::RequestBody;
use super::caller::Caller;
use super::error::HttpError;
use super::query::Query;
use super::topic_in_path::TopicInPath;
use super::{Http, answer};
use crate::auth::Action;

/// What settings may take, in bytes.
const MAX_SETTINGS_BYTES: usize = 64 << 10;

#[derive(Serialize)]
struct TopicList {
    topics: Vec<Extent>,
}

/// What a topic holds. Without events there is no first and no last.
#[derive(Serialize)]
struct Extent {
    topic: Topic,
    first_seq: Option<Seq>,
    last_seq: Option<Seq>,
    events: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct WholeTopic {
    #[serde(flatten)]
    extent: Extent,
    settings: Rules,
    own: Own,
}

impl Extent {
    fn new(topic: Topic, bounds: &Bounds) -> Self {
        let (events, bytes) = (bounds.count(), bounds.bytes);
        let first_seq = (events > 0).then_some(bounds.first);
        let last_seq = (events > 0).then(|| bounds.last());
        Self { topic, first_seq, last_seq, events, bytes }
    }
}

/// Those that the caller has anything to do with.
pub(super) async fn list(
    State(http): State<Arc<Http>>,
    caller: Caller,
    uri: Uri,
) -> Result<Response, HttpError> {
    Query::read(&uri, &[])?;
    let mut topics = Vec::new();
    for topic in http.bus().topics().await? {
        if caller.may_know_of(&topic) {
            let bounds = http.bus().bounds(&topic).await?;
            topics.push(Extent::new(topic, &bounds));
        }
    }
    Ok(answer::json(&TopicList { topics }))
}

pub(super) async fn get(
    State(http): State<Arc<Http>>,
    caller: Caller,
    TopicInPath(topic): TopicInPath,
    uri: Uri,
) -> Result<Response, HttpError> {
    caller.may(Action::Subscribe(&topic))?;
    Query::read(&uri, &[])?;
    described(&http, topic).await
}

/// Replaces the topic's own settings, and answers as [`get`].
pub(super) async fn put(
    State(http): State<Arc<Http>>,
    caller: Caller,
    TopicInPath(topic): TopicInPath,
    request: Request,
) -> Result<Response, HttpError> {
    caller.may(Action::Admin)?;
    let (head, body) = request.into_parts();
    Query::read(&head.uri, &[])?;
    let body = RequestBody::new(&head.headers, body, MAX_SETTINGS_BYTES)?.whole().await?;
    let own = Own::parse(&body)?;
    // On a task of its own, for who leaves before the answer must not leave settings that are
    // stored, but not in effect.
    let made = tokio::spawn(async move {
        http.bus().configure_topic(&topic, own.into()).await?;
        described(&http, topic).await
    });
    made.await.unwrap_or_else(|error| {
        Err(HttpError::new(ErrorCode::Internal, format!("making the settings failed: {error}")))
    })
}

async fn described(http: &Http, topic: Topic) -> Result<Response, HttpError> {
    let TopicOverview { bounds, rules, own } = http.bus().topic(&topic).await?;
    let extent = Extent::new(topic, &bounds);
    Ok(answer::json(&WholeTopic { extent, settings: rules.into(), own: own.into() }))
}
