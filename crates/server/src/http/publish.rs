//! `POST /publish/T`: the body is the payload of one event, or NDJSON.
//!
//! | idea | file |
//! |---|---|
//! | one payload, and what is said of it in the query | `single` |
//! | request headers that become the event's | `event_headers` |

mod event_headers;
mod single;

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;

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
    single::publish(&http, &peer.connection, &topic, request).await
}
