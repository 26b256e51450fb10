//! `DELETE /topics/{topic}`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use prombus_proto::{ErrorCode, Topic};
use serde::Serialize;

use crate::auth::Action;
use crate::http::error::HttpError;
use crate::http::path_names::PathTopic;
use crate::http::query::QueryParams;
use crate::http::request_grant::RequestGrant;
use crate::http::{HttpState, response};

#[derive(Serialize)]
struct DeletedTopic<'a> {
    topic: &'a Topic,
    deleted: bool,
}

/// Deletes the topic with everything that is stored for it.
pub(in crate::http) async fn delete(
    State(http): State<Arc<HttpState>>,
    grant: RequestGrant,
    PathTopic(topic): PathTopic,
    uri: Uri,
) -> Result<Response, HttpError> {
    grant.require(Action::Manage(&topic))?;
    QueryParams::parse(&uri, &[])?;
    // In its own task: if the client disconnects, the topic must not end up half deleted.
    let deleted = tokio::spawn(async move {
        http.bus().delete_topic(&topic).await?;
        grant.changed(&topic, "deleted");
        Ok(response::json(&DeletedTopic { topic: &topic, deleted: true }))
    });
    deleted.await.unwrap_or_else(|error| {
        Err(HttpError::new(ErrorCode::Internal, format!("cannot delete the topic: {error}")))
    })
}
