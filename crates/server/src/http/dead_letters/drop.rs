//! `POST /dlq/{topic}/drop`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use prombus_bus::{Discarded, LetterSelection};
use prombus_proto::{EventId, Seq, Topic};
use serde::Serialize;

use super::selection::{self, MAX_BODY_BYTES, MEMBERS};
use crate::auth::Action;
use crate::http::body_members::{BodyMembers, invalid};
use crate::http::error::HttpError;
use crate::http::path_names::PathTopic;
use crate::http::request_grant::RequestGrant;
use crate::http::{HttpState, own_task, response};

#[derive(Serialize)]
struct Dropped {
    topic: Topic,
    dropped: u64,
    next: Option<EventId>,
    end_seq: Seq,
}

/// Gives up dead letters: they are no longer listed and cannot be redriven.
pub(in crate::http) async fn post(
    State(http): State<Arc<HttpState>>,
    grant: RequestGrant,
    PathTopic(topic): PathTopic,
    request: Request,
) -> Result<Response, HttpError> {
    grant.require(Action::Manage(&topic))?;
    super::letters_topic(&topic)?;
    let declared = [&MEMBERS[..], &["all"]].concat();
    let members = BodyMembers::receive(&http, request, MAX_BODY_BYTES, &declared).await?;
    let selection = parse(&members)?;
    let dropping = async move {
        let Discarded { dropped, next, end } = http.bus().drop_letters(&topic, selection).await?;
        if dropped > 0 {
            grant.changed(&topic, &format!("dead letters: {dropped} dropped"));
        }
        Ok(response::json(&Dropped { topic, dropped, next, end_seq: end }))
    };
    own_task::complete("drop the dead letters", dropping).await
}

/// To drop everything has to be meant: a forgotten member must not be enough.
fn parse(members: &BodyMembers) -> Result<LetterSelection, HttpError> {
    let is_narrowed = members.has("group") || members.has("ids");
    match (members.has("all"), members.flag("all")?) {
        (true, false) => Err(invalid("all", "must be true")),
        (true, true) if is_narrowed => Err(invalid("all", "excludes group and ids")),
        (false, _) if !is_narrowed => {
            Err(invalid("the body", "must have group, ids or \"all\": true"))
        }
        _ => selection::parse(members),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(body: &str) -> Result<LetterSelection, HttpError> {
        parse(&BodyMembers::parse(body.as_bytes(), &[&MEMBERS[..], &["all"]].concat())?)
    }

    #[test]
    fn everything_has_to_be_meant() {
        let everything = parsed(r#"{"all": true, "group": null, "limit": 5}"#).unwrap();
        assert!(everything.group.is_none() && everything.ids.is_none());
        assert_eq!(everything.limit, 5);
        assert!(parsed(r#"{"group": "g"}"#).unwrap().group.is_some());
        let two = parsed(r#"{"ids": ["a", "b"], "all": null}"#).unwrap();
        assert_eq!((two.ids.map(|ids| ids.len()), two.limit), (Some(2), 1000));
        for (body, reason) in [
            ("", "the body must have group, ids or"),
            (r#"{"limit": 5, "after": "x"}"#, "the body must have group, ids or"),
            (r#"{"all": false}"#, "all must be true"),
            (r#"{"all": 1}"#, "all must be true"),
            (r#"{"all": true, "group": "g"}"#, "all excludes group and ids"),
            (r#"{"all": true, "ids": ["a"]}"#, "all excludes group and ids"),
            (r#"{"ids": []}"#, "ids must be an array of 1 to 1000 ids"),
            (r#"{"group": "g", "limit": 1001}"#, "limit must be a whole number from 1 to 1000"),
        ] {
            let debug = format!("{:?}", parsed(body).unwrap_err()).replace('\\', "");
            assert!(debug.contains(reason), "{body}: {debug}");
        }
    }
}
