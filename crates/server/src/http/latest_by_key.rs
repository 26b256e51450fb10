//! `GET /latest-by-key`: the last event with a key, byte for byte as it was committed.

use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use prombus_proto::{ErrorCode, Key};

use super::error::HttpError;
use super::query::{QueryParams, required};
use super::request_grant::RequestGrant;
use super::{HttpState, response};
use crate::auth::Action;

pub(super) async fn get(
    State(http): State<Arc<HttpState>>,
    grant: RequestGrant,
    uri: Uri,
) -> Result<Response, HttpError> {
    let query = QueryParams::parse(&uri, &["topic", "key"])?;
    let topic = query.topic()?;
    let key = required("key", query.parsed("key", Key::new)?)?;
    grant.require(Action::Read(&topic))?;
    let Some(event) = http.bus().latest_by_key(&topic, &key).await? else {
        let message = format!("{topic} holds no event with the key {:?}", key.as_str());
        return Err(HttpError::new(ErrorCode::UnknownId, message));
    };
    let mut json = Vec::with_capacity(event.json.len() + 16);
    json.extend_from_slice(b"{\"event\":");
    json.extend_from_slice(&event.json);
    json.push(b'}');
    Ok(response::raw_json(json))
}
