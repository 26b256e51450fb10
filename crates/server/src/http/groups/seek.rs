//! `POST /groups/{topic}/{group}/seek`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use prombus_bus::{SeekOptions, Sought, StartAt};
use prombus_proto::{Group, Seq, Timestamp, Topic};
use serde::Serialize;

use crate::auth::Action;
use crate::http::body_members::{BodyMembers, invalid, missing};
use crate::http::error::HttpError;
use crate::http::path_names::PathGroup;
use crate::http::request_grant::RequestGrant;
use crate::http::start::MAX_SEQ;
use crate::http::{HttpState, own_task, response};

const MAX_BODY_BYTES: usize = 4 << 10;
/// The members that say where to. Each belongs to the `to` of the same name.
const POSITIONS: [&str; 3] = ["ts", "afterId", "seq"];

#[derive(Serialize)]
struct SoughtGroup {
    topic: Topic,
    group: Group,
    next_seq: Seq,
    events: u64,
    marks_removed: u64,
    dry_run: bool,
}

/// Moves the group to another position.
pub(in crate::http) async fn post(
    State(http): State<Arc<HttpState>>,
    grant: RequestGrant,
    PathGroup(topic, group): PathGroup,
    request: Request,
) -> Result<Response, HttpError> {
    grant.require(Action::Manage(&topic))?;
    let [ts, after, seq] = POSITIONS;
    let declared = ["to", ts, after, seq, "dry_run", "honour_marks"];
    let members = BodyMembers::receive(&http, request, MAX_BODY_BYTES, &declared).await?;
    let to = target(&members)?;
    let (dry_run, honour_marks) = (members.flag("dry_run")?, members.flag("honour_marks")?);
    let seek = async move {
        let options = SeekOptions { honour_marks, dry_run };
        let sought = http.bus().seek_group(&topic, &group, &to, options).await?;
        let Sought { next, events, marks_removed } = sought;
        if !dry_run {
            let change = format!("group {group}: moved to {next}, {marks_removed} marks removed");
            grant.changed(&topic, &change);
        }
        let sought = SoughtGroup { topic, group, next_seq: next, events, marks_removed, dry_run };
        Ok(response::json(&sought))
    };
    own_task::complete("move the group", seek).await
}

fn target(members: &BodyMembers) -> Result<StartAt, HttpError> {
    let to = members.text("to")?.ok_or_else(|| missing("to"))?;
    if !["earliest", "latest"].contains(&to) && !POSITIONS.contains(&to) {
        return Err(invalid("to", "must be earliest, latest, ts, afterId or seq"));
    }
    if let Some(other) = POSITIONS.into_iter().find(|name| *name != to && members.has(name)) {
        return Err(invalid(other, format_args!("requires \"to\": \"{other}\"")));
    }
    let position = match to {
        "earliest" => Some(StartAt::Earliest),
        "latest" => Some(StartAt::Latest),
        "ts" => members.number(to, 0..=u64::MAX)?.map(|ts| StartAt::Time(Timestamp(ts))),
        "afterId" => members.event_id(to)?.map(StartAt::AfterId),
        _ => members.number(to, 1..=MAX_SEQ)?.map(|seq| StartAt::Seq(Seq(seq))),
    };
    position.ok_or_else(|| missing(to))
}

#[cfg(test)]
mod tests {
    use prombus_proto::EventId;

    use super::*;

    fn parsed(body: &str) -> Result<StartAt, HttpError> {
        let declared = ["to", "ts", "afterId", "seq", "dry_run", "honour_marks"];
        target(&BodyMembers::parse(body.as_bytes(), &declared)?)
    }

    #[test]
    fn reads_where_to() {
        for (body, expected) in [
            (r#"{"to": "earliest"}"#, StartAt::Earliest),
            (r#"{"to": "latest", "seq": null}"#, StartAt::Latest),
            (r#"{"to": "ts", "ts": 0}"#, StartAt::Time(Timestamp(0))),
            (r#"{"to": "afterId", "afterId": "a"}"#, StartAt::AfterId(EventId::new("a").unwrap())),
            (r#"{"to": "seq", "seq": 7}"#, StartAt::Seq(Seq(7))),
        ] {
            assert_eq!(parsed(body).unwrap(), expected, "{body}");
        }
    }

    #[test]
    fn names_the_member_that_is_missing_or_contradicts() {
        for (body, reason) in [
            ("", "to is missing"),
            (r#"{"to": 1}"#, "to must be a string"),
            (r#"{"to": "end", "seq": 1}"#, "to must be earliest, latest, ts, afterId or seq"),
            (r#"{"to": "ts"}"#, "ts is missing"),
            (r#"{"to": "seq", "seq": null}"#, "seq is missing"),
            (r#"{"to": "seq", "seq": 0}"#, "seq must be a whole number from 1"),
            (r#"{"to": "afterId", "afterId": ""}"#, "afterId is invalid"),
            (r#"{"to": "earliest", "ts": 5}"#, "ts requires"),
            (r#"{"to": "seq", "seq": 1, "afterId": "a"}"#, "afterId requires"),
            (r#"{"to": "seq", "seek": 1}"#, "unknown member"),
        ] {
            let debug = format!("{:?}", parsed(body).unwrap_err());
            assert!(debug.contains(reason), "{body}: {debug}");
        }
    }
}
