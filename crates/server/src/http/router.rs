//! Which path is answered where.

use std::sync::Arc;

use axum::Router;
use axum::http::{Method, StatusCode, Uri};
use axum::routing::{get, post};
use prombus_proto::ErrorCode;

use super::error::HttpError;
use super::{
    Http, export, groups, health, latest_by_key, metrics, publish, replay, stream, topics,
    websocket,
};

/// All paths. A GET answers HEAD, too.
pub(super) fn router(http: Arc<Http>) -> Router {
    Router::new()
        .route("/publish/{topic}", post(publish::post))
        .route("/replay", get(replay::get))
        .route("/export", get(export::get))
        .route("/stream", get(stream::get))
        .route("/topics", get(topics::list))
        .route("/topics/{topic}", get(topics::get).put(topics::put))
        .route("/groups", get(groups::groups))
        .route("/cursors", get(groups::cursors))
        .route("/lag", get(groups::lag))
        .route("/latest-by-key", get(latest_by_key::get))
        .route("/ws", get(websocket::get))
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(metrics::get))
        // The API itself: .route("/openapi.json", get(openapi::get))
        // The API itself: .route("/docs", get(docs::get))
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .with_state(http)
}

async fn unknown_path(uri: Uri) -> HttpError {
    let message = format!("nothing is at {}", uri.path());
    HttpError::new(ErrorCode::UnknownOp, message).with_status(StatusCode::NOT_FOUND)
}

/// `Allow` is added by the router, which knows.
async fn wrong_method(method: Method, uri: Uri) -> HttpError {
    let message = format!("{} does not take {method}; Allow says what it takes", uri.path());
    HttpError::new(ErrorCode::UnknownOp, message).with_status(StatusCode::METHOD_NOT_ALLOWED)
}
