//! `POST /publish/{topic}`: stores one event, or many as NDJSON.
//!
//! - [`single`]: the body is the payload of one event
//! - [`ndjson`]: one event per line
//! - [`shared_memory`]: what NDJSON requests may hold, shared by their callers
//! - [`event_headers`]: request headers that become headers of the event
//! - [`rate_limit`]: the limits and what is left of them, in the response headers

mod event_headers;
mod ndjson;
mod rate_limit;
mod shared_memory;
mod single;

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderMap};
use axum::response::{IntoResponse, Response};

use super::error::HttpError;
use super::path_names::PathTopic;
use super::request_grant::RequestGrant;
use super::{HttpState, Peer};
use crate::auth::Action;

pub(super) use ndjson::NdjsonMemory;

pub(super) async fn post(
    State(http): State<Arc<HttpState>>,
    Extension(peer): Extension<Arc<Peer>>,
    grant: RequestGrant,
    PathTopic(topic): PathTopic,
    request: Request,
) -> Result<Response, HttpError> {
    grant.require(Action::Publish(&topic))?;
    let connection = &peer.connection;
    let published = if is_ndjson(request.headers()) {
        ndjson::publish(&http, connection, grant.caller, &topic, request).await
    } else {
        single::publish(&http, connection, &topic, request).await
    };
    let mut response = published.into_response();
    if matches!(response.status(), StatusCode::OK | StatusCode::TOO_MANY_REQUESTS) {
        let topic_limit = http.bus().topic_limit(&topic);
        rate_limit::add_headers(response.headers_mut(), &connection.limit, topic_limit.as_ref());
    }
    Ok(response)
}

fn is_ndjson(headers: &HeaderMap) -> bool {
    let content_type =
        headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let without_parameters = content_type.split(';').next().unwrap_or("").trim();
    without_parameters.eq_ignore_ascii_case("application/x-ndjson")
}
