//! `GET /dlq/{topic}`: the dead letters of a topic. `redrive` and `drop`: what is done with them, as `selection` says
//! with which.

pub(super) mod drop;
pub(super) mod redrive;
mod selection;

use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use prombus_bus::{Letter, LetterPage, LetterSelection, dead_letter_topic};
use prombus_proto::{ErrorCode, EventId, Group, Seq, Timestamp, Topic};
use serde::Serialize;
use serde_json::value::RawValue;

use super::error::HttpError;
use super::path_names::PathTopic;
use super::query::QueryParams;
use super::request_grant::RequestGrant;
use super::{HttpState, response};
use crate::auth::Action;

const DEFAULT_LIMIT: u64 = 100;
const MAX_LIMIT: u64 = 1000;

#[derive(Serialize)]
struct LetterList {
    topic: Topic,
    letters: Vec<LetterEntry>,
    next: Option<EventId>,
}

#[derive(Serialize)]
struct LetterEntry {
    id: EventId,
    seq: Seq,
    group: Group,
    original: Option<Box<RawValue>>,
    original_id: Option<EventId>,
    err: String,
    attempts: u32,
    ts: Timestamp,
    redriven: bool,
}

/// Lists the dead letters of the topic, which is the one that their events came from.
pub(super) async fn get(
    State(http): State<Arc<HttpState>>,
    grant: RequestGrant,
    PathTopic(topic): PathTopic,
    uri: Uri,
) -> Result<Response, HttpError> {
    let letters = letters_topic(&topic)?;
    grant.require_either(Action::Read(&letters), Action::Manage(&topic))?;
    let query = QueryParams::parse(&uri, &["group", "id", "after", "limit"])?;
    let limit = query.number("limit", 1..=MAX_LIMIT)?.unwrap_or(DEFAULT_LIMIT);
    let selection = LetterSelection {
        group: query.optional_group()?,
        ids: query.parsed("id", EventId::new)?.map(|id| vec![id]),
        after: query.parsed("after", EventId::new)?,
        before: None,
        limit: usize::try_from(limit).unwrap_or(usize::MAX),
    };
    let LetterPage { letters, next } = http.bus().dead_letters(&topic, selection).await?;
    let letters = letters.into_iter().map(LetterEntry::from).collect();
    let list = LetterList { topic, letters, next };
    Ok(response::counted_json(&list, http.bus().memory().responses.share()))
}

/// Returns the topic of the dead letters of `topic`, whose name may be too long for one.
fn letters_topic(topic: &Topic) -> Result<Topic, HttpError> {
    dead_letter_topic(topic).map_err(|reason| {
        let message = format!("the topic in the path: the topic of its dead letters: {reason}");
        HttpError::new(ErrorCode::BadTopic, message)
    })
}

impl From<Letter> for LetterEntry {
    fn from(letter: Letter) -> Self {
        let Letter { seq, id, group, original, original_id, error, attempts, ts, redriven } =
            letter;
        Self { id, seq, group, original, original_id, err: error, attempts, ts, redriven }
    }
}
