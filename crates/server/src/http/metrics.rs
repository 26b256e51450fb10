//! `GET /metrics`: what the bus counts, for Prometheus.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::Uri;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::response::Response;

use super::Http;
use super::caller::Caller;
use super::error::HttpError;
use super::query::Query;
use crate::auth::Action;

pub(super) async fn get(
    State(http): State<Arc<Http>>,
    caller: Caller,
    uri: Uri,
) -> Result<Response, HttpError> {
    caller.may(Action::Admin)?;
    Query::read(&uri, &[])?;
    let mut response = Response::new(Body::from(http.bus().metrics_text().await?));
    let text = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, text);
    Ok(response)
}
