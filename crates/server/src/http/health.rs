//! Whether the server is there, and whether it is well.

use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use prombus_bus::Refusal;
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
    if *http.stopping.borrow() {
        return Err(Refusal::shutting_down().into());
    }
    Ok(answer::json(&Status { status: "ok" }))
}
