//! `GET /topics`, and `GET` and `PUT /topics/{topic}`: topics and their settings. `delete` and `purge`: what
//! removes them or their events.

pub(super) mod delete;
pub(super) mod purge;
mod settings;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::Uri;
use axum::response::Response;
use prombus_bus::{Bounds, TopicOverview};
use prombus_proto::{ErrorCode, Seq, Topic};
use serde::Serialize;

use self::settings::{EffectiveSettings, OwnSettings};
use super::body::RequestBody;
use super::error::HttpError;
use super::path_names::PathTopic;
use super::query::QueryParams;
use super::request_grant::RequestGrant;
use super::{HttpState, response};
use crate::auth::Action;

const MAX_SETTINGS_BYTES: usize = 64 << 10;

#[derive(Serialize)]
struct TopicList {
    topics: Vec<TopicSummary>,
}

/// `first_seq` and `last_seq` are `None` if the topic holds no events.
#[derive(Serialize)]
struct TopicSummary {
    topic: Topic,
    first_seq: Option<Seq>,
    last_seq: Option<Seq>,
    events: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct TopicDetails {
    #[serde(flatten)]
    summary: TopicSummary,
    settings: EffectiveSettings,
    own: OwnSettings,
}

impl TopicSummary {
    fn new(topic: Topic, bounds: &Bounds) -> Self {
        let (events, bytes) = (bounds.count(), bounds.bytes);
        let first_seq = (events > 0).then_some(bounds.first);
        let last_seq = (events > 0).then(|| bounds.last());
        Self { topic, first_seq, last_seq, events, bytes }
    }
}

/// Lists the topics that the token may access in any way.
pub(super) async fn list(
    State(http): State<Arc<HttpState>>,
    grant: RequestGrant,
    uri: Uri,
) -> Result<Response, HttpError> {
    QueryParams::parse(&uri, &[])?;
    let mut topics = Vec::new();
    for topic in http.bus().topics().await? {
        if grant.may_see(&topic) {
            let bounds = http.bus().known_bounds(&topic).await?;
            topics.push(TopicSummary::new(topic, &bounds));
        }
    }
    Ok(response::json(&TopicList { topics }))
}

pub(super) async fn get(
    State(http): State<Arc<HttpState>>,
    grant: RequestGrant,
    PathTopic(topic): PathTopic,
    uri: Uri,
) -> Result<Response, HttpError> {
    grant.require_either(Action::Read(&topic), Action::Manage(&topic))?;
    QueryParams::parse(&uri, &[])?;
    describe(&http, topic).await
}

/// Replaces the topic's own settings and responds like [`get`].
pub(super) async fn put(
    State(http): State<Arc<HttpState>>,
    grant: RequestGrant,
    PathTopic(topic): PathTopic,
    request: Request,
) -> Result<Response, HttpError> {
    grant.require(Action::Manage(&topic))?;
    let (head, body) = request.into_parts();
    QueryParams::parse(&head.uri, &[])?;
    let stall_timeout = http.gateway.settings.slow_consumer_timeout;
    let body = RequestBody::new(&head.headers, body, MAX_SETTINGS_BYTES, stall_timeout)?;
    let body = body.collect().await?;
    let own = OwnSettings::parse(&body)?;
    // In its own task: if the client disconnects, the settings must not end up stored but not
    // in effect.
    let configured = tokio::spawn(async move {
        let change = format!("settings {}", own.to_json());
        http.bus().configure_topic(&topic, own.into()).await?;
        grant.changed(&topic, &change);
        describe(&http, topic).await
    });
    configured.await.unwrap_or_else(|error| {
        Err(HttpError::new(ErrorCode::Internal, format!("cannot configure the topic: {error}")))
    })
}

async fn describe(http: &HttpState, topic: Topic) -> Result<Response, HttpError> {
    let TopicOverview { bounds, rules, own } = http.bus().topic(&topic).await?;
    let summary = TopicSummary::new(topic, &bounds);
    Ok(response::json(&TopicDetails { summary, settings: rules.into(), own: own.into() }))
}
