//! `GET /ws`: upgrades the request to a gateway connection.

use std::sync::Arc;

use axum::Extension;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use prombus_proto::ErrorCode;

use super::Peer;
use super::error::HttpError;
use crate::gateway::upgrade::upgrade;

pub(super) async fn get(Extension(peer): Extension<Arc<Peer>>, request: Request) -> Response {
    upgrade(request, &peer.accepted.upgrades).unwrap_or_else(|no| {
        no.response(|status, reason| {
            HttpError::new(ErrorCode::BadFrame, reason).with_status(status).into_response()
        })
    })
}
