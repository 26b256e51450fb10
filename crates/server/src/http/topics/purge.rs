//! `POST /topics/{topic}/purge`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use prombus_bus::{Purge, Purged};
use prombus_proto::{ErrorCode, Seq, Timestamp, Topic};
use serde::Serialize;
use serde_json::Value;

use crate::auth::Action;
use crate::http::body::RequestBody;
use crate::http::error::HttpError;
use crate::http::path_names::PathTopic;
use crate::http::query::QueryParams;
use crate::http::request_grant::RequestGrant;
use crate::http::{HttpState, response};

const MAX_BODY_BYTES: usize = 4 << 10;
const CRITERIA: &str = "before_seq, before_ts and all";

#[derive(Serialize)]
struct PurgedTopic {
    topic: Topic,
    removed: u64,
    first_seq: Seq,
}

/// Removes the first events of the topic.
pub(in crate::http) async fn post(
    State(http): State<Arc<HttpState>>,
    grant: RequestGrant,
    PathTopic(topic): PathTopic,
    request: Request,
) -> Result<Response, HttpError> {
    grant.require(Action::Manage(&topic))?;
    let (head, body) = request.into_parts();
    QueryParams::parse(&head.uri, &[])?;
    let stall_timeout = http.gateway.settings.slow_consumer_timeout;
    let body = RequestBody::new(&head.headers, body, MAX_BODY_BYTES, stall_timeout)?;
    let purge = parse(&body.collect().await?)?;
    // In its own task: if the client disconnects, what was removed is still logged.
    let purged = tokio::spawn(async move {
        let Purged { removed, first } = http.bus().purge_topic(&topic, purge).await?;
        grant.changed(&topic, &format!("purged of {removed} events, up to {first}"));
        Ok(response::json(&PurgedTopic { topic, removed, first_seq: first }))
    });
    purged.await.unwrap_or_else(|error| {
        Err(HttpError::new(ErrorCode::Internal, format!("cannot purge the topic: {error}")))
    })
}

fn parse(body: &[u8]) -> Result<Purge, HttpError> {
    let value: Value = serde_json::from_slice(body).map_err(|error| {
        HttpError::new(ErrorCode::BadJson, format!("the body: not JSON: {error}"))
    })?;
    let invalid = |message: String| HttpError::new(ErrorCode::BadFrame, message);
    let Value::Object(fields) = value else {
        return Err(invalid(format!("the body must be a JSON object with one of {CRITERIA}")));
    };
    let mut given = fields.iter().filter(|(_, value)| !value.is_null());
    let (Some((name, value)), None) = (given.next(), given.next()) else {
        return Err(invalid(format!("the body must have exactly one of {CRITERIA}")));
    };
    let number = || {
        value.as_u64().ok_or_else(|| invalid(format!("{name} must be a whole number, 0 or more")))
    };
    match name.as_str() {
        "before_seq" => Ok(Purge::BeforeSeq(Seq(number()?))),
        "before_ts" => Ok(Purge::BeforeTime(Timestamp(number()?))),
        "all" if *value == Value::Bool(true) => Ok(Purge::All),
        "all" => Err(invalid("all must be true".to_owned())),
        name => {
            let shown = &name[..name.floor_char_boundary(40)];
            Err(invalid(format!("{shown} is not a criterion; expected one of {CRITERIA}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_exactly_one_criterion() {
        for (body, purge) in [
            (r#"{"before_seq": 7}"#, Purge::BeforeSeq(Seq(7))),
            (r#"{"before_ts": 1700000000000}"#, Purge::BeforeTime(Timestamp(1_700_000_000_000))),
            (r#"{"all": true, "before_seq": null}"#, Purge::All),
        ] {
            assert_eq!(parse(body.as_bytes()).ok(), Some(purge), "{body}");
        }
        for body in [
            "",
            "[]",
            "{}",
            r#"{"all": false}"#,
            r#"{"all": 1}"#,
            r#"{"before_seq": -1}"#,
            r#"{"before_seq": "7"}"#,
            r#"{"before_ts": 1.5}"#,
            r#"{"before_seq": 7, "all": true}"#,
            r#"{"before_seq": 7, "extra": 1}"#,
            r#"{"before": 7}"#,
        ] {
            assert!(parse(body.as_bytes()).is_err(), "{body}");
        }
    }
}
