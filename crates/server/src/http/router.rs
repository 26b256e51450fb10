//! Which path is answered where.

use std::sync::Arc;

use axum::Router;
use axum::http::{Method, StatusCode, Uri};
use axum::routing::MethodRouter;
use prombus_proto::ErrorCode;

use super::error::HttpError;
use super::{
    Http, docs, export, groups, health, latest_by_key, metrics, openapi, publish, replay, stream,
    topics, websocket,
};

/// Makes the router and, from the same lines, the list of what it takes.
macro_rules! routes {
    ($($path:literal: $($method:ident $handler:path),+;)*) => {
        fn routes() -> Router<Arc<Http>> {
            Router::new()$(.route($path, MethodRouter::new()$(.$method($handler))+))*
        }

        /// All methods and paths.
        #[cfg(test)]
        pub(super) const ROUTES: &[(&str, &str)] = &[$($((stringify!($method), $path),)+)*];
    };
}

// A GET answers HEAD, too. Each is described in `openapi.json`.
routes! {
    "/publish/{topic}": post publish::post;
    "/replay": get replay::get;
    "/export": get export::get;
    "/stream": get stream::get;
    "/latest-by-key": get latest_by_key::get;
    "/topics": get topics::list;
    "/topics/{topic}": get topics::get, put topics::put;
    "/groups": get groups::groups;
    "/cursors": get groups::cursors;
    "/lag": get groups::lag;
    "/ws": get websocket::get;
    "/healthz": get health::alive;
    "/readyz": get health::ready;
    "/metrics": get metrics::get;
    "/openapi.json": get openapi::get;
    "/docs": get docs::get;
    "/": get docs::redirect;
}

/// All paths, and what is said to those that ask for others.
pub(super) fn router(http: Arc<Http>) -> Router {
    routes().fallback(unknown_path).method_not_allowed_fallback(wrong_method).with_state(http)
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
