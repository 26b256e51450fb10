//! `GET /ws`: upgrades the request to a gateway connection.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use prombus_proto::ErrorCode;

use super::error::HttpError;
use super::{HttpState, Peer};

pub(super) async fn get(
    State(http): State<Arc<HttpState>>,
    Extension(peer): Extension<Arc<Peer>>,
    request: Request,
) -> Response {
    http.gateway.upgrade(request, &peer.accepted).unwrap_or_else(|no| {
        no.response(|status, reason| {
            let code = match status {
                StatusCode::UNAUTHORIZED => ErrorCode::BadToken,
                _ => ErrorCode::BadFrame,
            };
            HttpError::new(code, reason).with_status(status).into_response()
        })
    })
}
