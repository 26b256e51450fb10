//! Whether the server is there, and whether it is well.

use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use prombus_bus::{Condition, Refusal};
use prombus_proto::ErrorCode;
use serde::Serialize;

use super::error::HttpError;
use super::query::Query;
use super::{Http, answer};

#[derive(Serialize)]
struct Status {
    status: &'static str,
}

/// `GET /healthz`: the process answers.
pub(super) async fn alive(uri: Uri) -> Result<Response, HttpError> {
    Query::read(&uri, &[])?;
    Ok(answer::json(&Status { status: "ok" }))
}

/// `GET /readyz`: it can do its work.
pub(super) async fn ready(State(http): State<Arc<Http>>, uri: Uri) -> Result<Response, HttpError> {
    Query::read(&uri, &[])?;
    let is_stopping = *http.stopping.borrow();
    let reason = match http.bus().health().condition {
        _ if is_stopping => return Err(Refusal::shutting_down().into()),
        Condition::Healthy => return Ok(answer::json(&Status { status: "ok" })),
        Condition::Full(reason) => format!("the storage is full: {reason}"),
        Condition::Poisoned(reason) => {
            format!("the storage failed, and the server has to be restarted: {reason}")
        }
        Condition::Closed => "the storage is closed".to_owned(),
    };
    Err(HttpError::new(ErrorCode::StorageUnavailable, reason))
}
