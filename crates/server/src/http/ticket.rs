//! `POST /ticket`: a ticket for the rights of the request, which a web page presents in a URL.

use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;
use axum::http::header::{CACHE_CONTROL, HeaderValue};
use axum::response::Response;
use serde::Serialize;

use super::error::HttpError;
use super::query::QueryParams;
use super::request_grant::RequestGrant;
use super::{HttpState, response};

#[derive(Serialize)]
struct Issued {
    ticket: String,
    /// From now.
    expires_ms: u64,
}

pub(super) async fn post(
    State(http): State<Arc<HttpState>>,
    grant: RequestGrant,
    uri: Uri,
) -> Result<Response, HttpError> {
    QueryParams::parse(&uri, &[])?;
    let (ticket, lifetime) = http.gateway.issue_ticket(grant.into_credential())?;
    let expires_ms = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
    let mut response = response::json(&Issued { ticket, expires_ms });
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}
