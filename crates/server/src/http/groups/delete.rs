//! `DELETE /groups/{topic}/{group}`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use prombus_proto::{Group, Topic};
use serde::Serialize;

use crate::auth::Action;
use crate::http::error::HttpError;
use crate::http::path_names::PathGroup;
use crate::http::query::QueryParams;
use crate::http::request_grant::RequestGrant;
use crate::http::{HttpState, own_task, response};

#[derive(Serialize)]
struct DeletedGroup<'a> {
    topic: &'a Topic,
    group: &'a Group,
    deleted: bool,
}

/// Deletes the group with its progress and its marks.
pub(in crate::http) async fn delete(
    State(http): State<Arc<HttpState>>,
    grant: RequestGrant,
    PathGroup(topic, group): PathGroup,
    uri: Uri,
) -> Result<Response, HttpError> {
    grant.require(Action::Manage(&topic))?;
    QueryParams::parse(&uri, &[])?;
    let deletion = async move {
        http.bus().delete_group(&topic, &group).await?;
        grant.changed(&topic, &format!("group {group}: deleted"));
        Ok(response::json(&DeletedGroup { topic: &topic, group: &group, deleted: true }))
    };
    own_task::complete("delete the group", deletion).await
}
