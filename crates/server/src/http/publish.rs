//! `POST /publish/T`: the body is the payload of one event, or NDJSON.
//!
//! | idea | file |
//! |---|---|
//! | one payload, and what is said of it in the query | `single` |
//! | many events, one a line | `lines` |
//! | request headers that become the event's | `event_headers` |
//! | what the limits leave, in the headers of the answer | `rate_limit` |

mod event_headers;
mod lines;
mod rate_limit;
mod single;

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderMap};
use axum::response::{IntoResponse, Response};

use super::caller::Caller;
use super::error::HttpError;
use super::topic_in_path::TopicInPath;
use super::{Http, Peer};
use crate::auth::Action;

pub(super) async fn post(
    State(http): State<Arc<Http>>,
    Extension(peer): Extension<Arc<Peer>>,
    caller: Caller,
    TopicInPath(topic): TopicInPath,
    request: Request,
) -> Result<Response, HttpError> {
    caller.may(Action::Publish(&topic))?;
    let connection = &peer.connection;
    let published = if is_ndjson(request.headers()) {
        lines::publish(&http, connection, &topic, request).await
    } else {
        single::publish(&http, connection, &topic, request).await
    };
    let mut response = published.into_response();
    if matches!(response.status(), StatusCode::OK | StatusCode::TOO_MANY_REQUESTS) {
        rate_limit::tell(
            response.headers_mut(),
            &connection.limit,
            &http.bus().topic_limit(&topic),
        );
    }
    Ok(response)
}

fn is_ndjson(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let without_parameters = kind.split(';').next().unwrap_or("").trim();
    without_parameters.eq_ignore_ascii_case("application/x-ndjson")
}
