//! `POST /dlq/{topic}/redrive`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use prombus_bus::Redriven;
use prombus_proto::{EventId, Seq, Topic};
use serde::Serialize;

use super::selection::{self, MAX_BODY_BYTES, MEMBERS};
use crate::auth::Action;
use crate::http::body_members::BodyMembers;
use crate::http::error::HttpError;
use crate::http::path_names::PathTopic;
use crate::http::request_grant::RequestGrant;
use crate::http::{HttpState, own_task, response};

#[derive(Serialize)]
struct RedrivenLetters {
    topic: Topic,
    redriven: u64,
    skipped: u64,
    next: Option<EventId>,
    end_seq: Seq,
}

/// Delivers the events of dead letters again, each to the group that failed.
pub(in crate::http) async fn post(
    State(http): State<Arc<HttpState>>,
    grant: RequestGrant,
    PathTopic(topic): PathTopic,
    request: Request,
) -> Result<Response, HttpError> {
    grant.require(Action::Manage(&topic))?;
    super::letters_topic(&topic)?;
    let members = BodyMembers::receive(&http, request, MAX_BODY_BYTES, &MEMBERS).await?;
    let selection = selection::parse(&members)?;
    let redrive = async move {
        let Redriven { redriven, skipped, next, end } =
            http.bus().redrive(&topic, selection).await?;
        if redriven > 0 {
            grant.changed(&topic, &format!("dead letters: {redriven} redriven"));
        }
        Ok(response::json(&RedrivenLetters { topic, redriven, skipped, next, end_seq: end }))
    };
    own_task::complete("redrive the dead letters", redrive).await
}
