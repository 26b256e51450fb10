//! Liveness and readiness.

use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use prombus_bus::{Condition, Refusal};
use prombus_proto::ErrorCode;
use serde::Serialize;

use super::error::HttpError;
use super::query::QueryParams;
use super::{HttpState, response};

#[derive(Serialize)]
struct Health {
    status: &'static str,
}

/// `GET /healthz`: succeeds as long as the process runs.
pub(super) async fn alive(uri: Uri) -> Result<Response, HttpError> {
    QueryParams::parse(&uri, &[])?;
    Ok(response::json(&Health { status: "ok" }))
}

/// `GET /readyz`: fails while the server stops or cannot store events.
pub(super) async fn ready(
    State(http): State<Arc<HttpState>>,
    uri: Uri,
) -> Result<Response, HttpError> {
    QueryParams::parse(&uri, &[])?;
    let is_stopping = http.phases.borrow().is_stopping();
    let reason = match http.bus().health().condition {
        _ if is_stopping => return Err(Refusal::shutting_down().into()),
        Condition::Healthy => return Ok(response::json(&Health { status: "ok" })),
        Condition::Full(reason) => format!("the storage is full: {reason}"),
        Condition::Poisoned(reason) => format!("the storage failed; restart the server: {reason}"),
        Condition::Closed => "the storage is closed".to_owned(),
    };
    Err(HttpError::new(ErrorCode::StorageUnavailable, reason))
}
