//! `GET /groups`, `/cursors` and `/lag`: who consumes a topic, and how far they are.

use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use prombus_bus::{GroupOverview, Lag};
use prombus_proto::{EventId, Group, Seq, Timestamp, Topic};
use serde::Serialize;

use super::caller::Caller;
use super::error::HttpError;
use super::query::Query;
use super::{Http, answer};
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

/// All up to `seq` is done. Without `last_id` and `last_ts` the group did not get that event itself.
#[derive(Serialize)]
struct CursorEntry {
    group: Group,
    seq: Seq,
    last_id: Option<EventId>,
    last_ts: Option<Timestamp>,
    created: Timestamp,
}

#[derive(Serialize)]
struct LagOfGroup {
    topic: Topic,
    group: Group,
    events: u64,
    ms: u64,
}

pub(super) async fn groups(
    State(http): State<Arc<Http>>,
    caller: Caller,
    uri: Uri,
) -> Result<Response, HttpError> {
    let (topic, groups) = groups_of(&http, &caller, &uri).await?;
    let groups = groups.into_iter().map(GroupEntry::from).collect();
    Ok(answer::json(&GroupList { topic, groups }))
}

pub(super) async fn cursors(
    State(http): State<Arc<Http>>,
    caller: Caller,
    uri: Uri,
) -> Result<Response, HttpError> {
    let (topic, groups) = groups_of(&http, &caller, &uri).await?;
    let cursors = groups.into_iter().map(CursorEntry::from).collect();
    Ok(answer::json(&CursorList { topic, cursors }))
}

async fn groups_of(
    http: &Http,
    caller: &Caller,
    uri: &Uri,
) -> Result<(Topic, Vec<GroupOverview>), HttpError> {
    let topic = Query::read(uri, &["topic"])?.topic()?;
    caller.may(Action::Subscribe(&topic))?;
    let groups = http.bus().groups_of(&topic).await?;
    Ok((topic, groups))
}

pub(super) async fn lag(
    State(http): State<Arc<Http>>,
    caller: Caller,
    uri: Uri,
) -> Result<Response, HttpError> {
    let query = Query::read(&uri, &["topic", "group"])?;
    let (topic, group) = (query.topic()?, query.group()?);
    caller.may(Action::Subscribe(&topic))?;
    let Lag { events, ms } = http.bus().group(&topic, &group).await?.lag;
    Ok(answer::json(&LagOfGroup { topic, group, events, ms }))
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
