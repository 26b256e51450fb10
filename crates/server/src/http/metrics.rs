//! `GET /metrics`: the metrics of the bus in the Prometheus text format.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::Uri;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::response::Response;

use super::HttpState;
use super::error::HttpError;
use super::query::QueryParams;
use super::request_grant::RequestGrant;
use crate::auth::Action;

pub(super) async fn get(
    State(http): State<Arc<HttpState>>,
    grant: RequestGrant,
    uri: Uri,
) -> Result<Response, HttpError> {
    grant.require(Action::Admin)?;
    QueryParams::parse(&uri, &[])?;
    let mut response = Response::new(Body::from(http.bus().metrics_text().await?));
    let content_type = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    Ok(response)
}
