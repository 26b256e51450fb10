//! The routes and their handlers.

use std::sync::Arc;

use axum::Router;
use axum::http::{Method, StatusCode, Uri};
use axum::routing::MethodRouter;
use prombus_proto::ErrorCode;

use super::error::HttpError;
use super::{
    HttpState, backup, dead_letters, docs, export, groups, health, latest_by_key, metrics, openapi,
    publish, replay, stream, ticket, topics, websocket,
};

/// Builds the router and, from the same lines, the list that tests compare with `openapi.json`.
macro_rules! routes {
    ($($path:literal: $($method:ident $handler:path),+;)*) => {
        fn routes() -> Router<Arc<HttpState>> {
            Router::new()$(.route($path, MethodRouter::new()$(.$method($handler))+))*
        }

        #[cfg(test)]
        pub(super) const ROUTES: &[(&str, &str)] = &[$($((stringify!($method), $path),)+)*];
    };
}

// A GET route also serves HEAD.
routes! {
    "/publish/{topic}": post publish::post;
    "/replay": get replay::get;
    "/export": get export::get;
    "/stream": get stream::get;
    "/latest-by-key": get latest_by_key::get;
    "/topics": get topics::list;
    "/topics/{topic}": get topics::get, put topics::put, delete topics::delete::delete;
    "/topics/{topic}/purge": post topics::purge::post;
    "/groups": get groups::groups;
    "/groups/{topic}/{group}": get groups::details::get, put groups::details::put, delete groups::delete::delete;
    "/groups/{topic}/{group}/seek": post groups::seek::post;
    "/cursors": get groups::cursors;
    "/lag": get groups::lag;
    "/dlq/{topic}": get dead_letters::get;
    "/dlq/{topic}/redrive": post dead_letters::redrive::post;
    "/dlq/{topic}/drop": post dead_letters::drop::post;
    "/ticket": post ticket::post;
    "/backup": get backup::get;
    "/ws": get websocket::get;
    "/healthz": get health::alive;
    "/readyz": get health::ready;
    "/metrics": get metrics::get;
    "/openapi.json": get openapi::get;
    "/docs": get docs::get;
    "/": get docs::redirect;
}

pub(super) fn router(http: Arc<HttpState>) -> Router {
    routes().fallback(unknown_path).method_not_allowed_fallback(wrong_method).with_state(http)
}

async fn unknown_path(uri: Uri) -> HttpError {
    let message = format!("no such path: {}", uri.path());
    HttpError::new(ErrorCode::UnknownOp, message).with_status(StatusCode::NOT_FOUND)
}

/// The router adds the header `Allow`.
async fn wrong_method(method: Method, uri: Uri) -> HttpError {
    let message = format!("{} does not support {method}; see the Allow header", uri.path());
    HttpError::new(ErrorCode::UnknownOp, message).with_status(StatusCode::METHOD_NOT_ALLOWED)
}
