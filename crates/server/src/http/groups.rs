//! `GET /groups`, `/cursors` and `/lag`: the consumer groups of a topic and their progress. `details`, `delete` and
//! `seek`: one group.

pub(super) mod delete;
pub(super) mod details;
pub(super) mod seek;

use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use prombus_bus::{GroupOverview, Lag};
use prombus_proto::{EventId, Group, Seq, Timestamp, Topic};
use serde::Serialize;

use super::error::HttpError;
use super::query::QueryParams;
use super::request_grant::RequestGrant;
use super::{HttpState, response};
use crate::auth::Action;

#[derive(Serialize)]
struct GroupList {
    topic: Topic,
    groups: Vec<GroupEntry>,
}

#[derive(Serialize)]
struct GroupEntry {
    group: Group,
    members: usize,
    in_flight: usize,
    lag_events: u64,
    lag_ms: u64,
}

#[derive(Serialize)]
struct CursorList {
    topic: Topic,
    cursors: Vec<CursorEntry>,
}

/// Every event up to `seq` is settled. `last_id` and `last_ts` are absent if the event at `seq` was
/// never delivered to the group.
#[derive(Serialize)]
struct CursorEntry {
    group: Group,
    seq: Seq,
    last_id: Option<EventId>,
    last_ts: Option<Timestamp>,
    created: Timestamp,
}

#[derive(Serialize)]
struct GroupLag {
    topic: Topic,
    group: Group,
    events: u64,
    ms: u64,
}

pub(super) async fn groups(
    State(http): State<Arc<HttpState>>,
    grant: RequestGrant,
    uri: Uri,
) -> Result<Response, HttpError> {
    let (topic, groups) = groups_of(&http, &grant, &uri).await?;
    let groups = groups.into_iter().map(GroupEntry::from).collect();
    Ok(response::json(&GroupList { topic, groups }))
}

pub(super) async fn cursors(
    State(http): State<Arc<HttpState>>,
    grant: RequestGrant,
    uri: Uri,
) -> Result<Response, HttpError> {
    let (topic, groups) = groups_of(&http, &grant, &uri).await?;
    let cursors = groups.into_iter().map(CursorEntry::from).collect();
    Ok(response::json(&CursorList { topic, cursors }))
}

async fn groups_of(
    http: &HttpState,
    grant: &RequestGrant,
    uri: &Uri,
) -> Result<(Topic, Vec<GroupOverview>), HttpError> {
    let topic = QueryParams::parse(uri, &["topic"])?.topic()?;
    grant.require_groups(&topic)?;
    let mut groups = http.bus().groups_of(&topic).await?;
    groups.retain(|overview| grant.may_see_group(&topic, &overview.group));
    Ok((topic, groups))
}

pub(super) async fn lag(
    State(http): State<Arc<HttpState>>,
    grant: RequestGrant,
    uri: Uri,
) -> Result<Response, HttpError> {
    let query = QueryParams::parse(&uri, &["topic", "group"])?;
    let (topic, group) = (query.topic()?, query.group()?);
    let consume = Action::Consume { topic: &topic, group: &group };
    grant.require_either(consume, Action::Manage(&topic))?;
    let Lag { events, ms } = http.bus().group(&topic, &group).await?.lag;
    Ok(response::json(&GroupLag { topic, group, events, ms }))
}

impl From<GroupOverview> for GroupEntry {
    fn from(overview: GroupOverview) -> Self {
        let GroupOverview { group, lag, members, in_flight, .. } = overview;
        Self { group, members, in_flight, lag_events: lag.events, lag_ms: lag.ms }
    }
}

impl From<GroupOverview> for CursorEntry {
    fn from(overview: GroupOverview) -> Self {
        let GroupOverview { group, cursor, .. } = overview;
        Self {
            group,
            seq: cursor.floor,
            last_id: cursor.last_id,
            last_ts: cursor.last_ts,
            created: cursor.created,
        }
    }
}
