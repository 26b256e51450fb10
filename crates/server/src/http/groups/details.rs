//! `GET` and `PUT /groups/{topic}/{group}`: everything about one group, and its setting.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::Uri;
use axum::response::Response;
use prombus_bus::cursor::Attempts;
use prombus_bus::{GroupChange, GroupDetails, MemberDetails, OldestUnfinished, WhyUnfinished};
use prombus_proto::limits::MAX_ATTEMPTS;
use prombus_proto::{EventId, Group, Seq, Timestamp, Topic};
use serde::Serialize;

use crate::auth::Action;
use crate::http::body_members::BodyMembers;
use crate::http::error::HttpError;
use crate::http::path_names::PathGroup;
use crate::http::query::QueryParams;
use crate::http::request_grant::RequestGrant;
use crate::http::{HttpState, own_task, response};

const MAX_BODY_BYTES: usize = 4 << 10;

/// Every event up to `seq` is settled.
#[derive(Serialize)]
struct Details {
    topic: Topic,
    group: Group,
    members: Vec<Member>,
    in_flight: usize,
    lag: Lag,
    max_attempts: u32,
    created: Timestamp,
    seq: Seq,
    redriving: u64,
    remote: bool,
    oldest: Option<Oldest>,
}

#[derive(Serialize)]
struct Lag {
    events: u64,
    ms: u64,
}

#[derive(Serialize)]
struct Member {
    /// `None` if principals have no limits.
    principal: Option<String>,
    in_flight: u32,
    max_in_flight: u32,
    ack_timeout_ms: u64,
    paused: bool,
}

/// The oldest event that the group has not settled.
#[derive(Serialize)]
struct Oldest {
    seq: Seq,
    id: Option<EventId>,
    age_ms: u64,
    deliveries: u32,
    failures: u16,
    last_reason: Option<String>,
    #[serde(flatten)]
    why: Why,
}

#[derive(Serialize)]
#[serde(tag = "why", rename_all = "snake_case")]
enum Why {
    InFlight { deadline_ms: u64 },
    BackingOff { retry_ms: u64 },
    Storing,
    NoMembers,
    Paused,
    MembersBusy,
    WaitsToBeAlone,
    Ready,
    AtAnotherGateway,
}

pub(in crate::http) async fn get(
    State(http): State<Arc<HttpState>>,
    grant: RequestGrant,
    PathGroup(topic, group): PathGroup,
    uri: Uri,
) -> Result<Response, HttpError> {
    let consume = Action::Consume { topic: &topic, group: &group };
    grant.require_either(consume, Action::Manage(&topic))?;
    QueryParams::parse(&uri, &[])?;
    describe(&http, topic, &group).await
}

/// Changes the group and responds like [`get`].
pub(in crate::http) async fn put(
    State(http): State<Arc<HttpState>>,
    grant: RequestGrant,
    PathGroup(topic, group): PathGroup,
    request: Request,
) -> Result<Response, HttpError> {
    grant.require(Action::Manage(&topic))?;
    let members = BodyMembers::receive(&http, request, MAX_BODY_BYTES, &["max_attempts"]).await?;
    let max_attempts = max_attempts(&members)?;
    let change = async move {
        let change = GroupChange { max_attempts: Some(max_attempts) };
        http.bus().set_group(&topic, &group, change).await?;
        let shown = max_attempts.map_or_else(|| "default".to_owned(), |count| count.to_string());
        grant.changed(&topic, &format!("group {group}: max_attempts {shown}"));
        describe(&http, topic, &group).await
    };
    own_task::complete("change the group", change).await
}

/// Returns `None` for the configured default.
fn max_attempts(members: &BodyMembers) -> Result<Option<u32>, HttpError> {
    members.required("max_attempts")?;
    let count = members.number("max_attempts", 1..=u64::from(MAX_ATTEMPTS))?;
    Ok(count.and_then(|count| u32::try_from(count).ok()))
}

async fn describe(http: &HttpState, topic: Topic, group: &Group) -> Result<Response, HttpError> {
    let details = http.bus().group_details(&topic, group).await?;
    Ok(response::json(&Details::new(topic, details)))
}

impl Details {
    fn new(topic: Topic, details: GroupDetails) -> Self {
        let GroupDetails { overview, max_attempts, redriving, is_remote, members, oldest } =
            details;
        Self {
            topic,
            group: overview.group,
            members: members.into_iter().map(Member::from).collect(),
            in_flight: overview.in_flight,
            lag: Lag { events: overview.lag.events, ms: overview.lag.ms },
            max_attempts,
            created: overview.cursor.created,
            seq: overview.cursor.floor,
            redriving,
            remote: is_remote,
            oldest: oldest.map(Oldest::from),
        }
    }
}

impl From<MemberDetails> for Member {
    fn from(member: MemberDetails) -> Self {
        let MemberDetails { principal, in_flight, max_in_flight, ack_timeout, is_paused } = member;
        let principal = principal.map(|principal| principal.to_string());
        let ack_timeout_ms = milliseconds(ack_timeout);
        Self { principal, in_flight, max_in_flight, ack_timeout_ms, paused: is_paused }
    }
}

impl From<OldestUnfinished> for Oldest {
    fn from(oldest: OldestUnfinished) -> Self {
        let OldestUnfinished { seq, id, age_ms, attempts, last_reason, why } = oldest;
        let Attempts { deliveries, failures, .. } = attempts;
        Self { seq, id, age_ms, deliveries, failures, last_reason, why: why.into() }
    }
}

impl From<WhyUnfinished> for Why {
    fn from(why: WhyUnfinished) -> Self {
        match why {
            WhyUnfinished::InFlight { left } => Self::InFlight { deadline_ms: milliseconds(left) },
            WhyUnfinished::BackingOff { left } => Self::BackingOff { retry_ms: milliseconds(left) },
            WhyUnfinished::Storing => Self::Storing,
            WhyUnfinished::NoMembers => Self::NoMembers,
            WhyUnfinished::Paused => Self::Paused,
            WhyUnfinished::MembersBusy => Self::MembersBusy,
            WhyUnfinished::WaitsToBeAlone => Self::WaitsToBeAlone,
            WhyUnfinished::Ready => Self::Ready,
            WhyUnfinished::AtAnotherGateway => Self::AtAnotherGateway,
        }
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_reason_is_one_word_with_its_time() {
        let oldest = |why| {
            let id = EventId::new("e7").ok();
            let last_reason = Some("broken".to_owned());
            let oldest = OldestUnfinished {
                seq: Seq(7),
                id,
                age_ms: 9,
                attempts: Attempts { deliveries: 3, failures: 2, disconnects: 1 },
                last_reason,
                why,
            };
            serde_json::to_value(Oldest::from(oldest)).unwrap()
        };
        let expected = json!({
            "seq": 7, "id": "e7", "age_ms": 9, "deliveries": 3, "failures": 2,
            "last_reason": "broken", "why": "in_flight", "deadline_ms": 50,
        });
        assert_eq!(oldest(WhyUnfinished::InFlight { left: Duration::from_millis(50) }), expected);
        let backing_off = oldest(WhyUnfinished::BackingOff { left: Duration::from_millis(60) });
        assert_eq!(
            (&backing_off["why"], &backing_off["retry_ms"]),
            (&json!("backing_off"), &json!(60))
        );
        for (why, word) in [
            (WhyUnfinished::Storing, "storing"),
            (WhyUnfinished::NoMembers, "no_members"),
            (WhyUnfinished::Paused, "paused"),
            (WhyUnfinished::MembersBusy, "members_busy"),
            (WhyUnfinished::WaitsToBeAlone, "waits_to_be_alone"),
            (WhyUnfinished::Ready, "ready"),
            (WhyUnfinished::AtAnotherGateway, "at_another_gateway"),
        ] {
            let written = oldest(why);
            assert_eq!(written["why"], word);
            assert_eq!(written.as_object().unwrap().len(), 7, "{written}");
        }
    }

    #[test]
    fn the_attempts_are_named_and_null_is_the_default() {
        let parsed =
            |body: &str| max_attempts(&BodyMembers::parse(body.as_bytes(), &["max_attempts"])?);
        assert_eq!(parsed(r#"{"max_attempts": 1000}"#).unwrap(), Some(1000));
        assert_eq!(parsed(r#"{"max_attempts": null}"#).unwrap(), None);
        for body in ["", "{}", r#"{"max_attempts": 0}"#, r#"{"max_attempts": 1001}"#] {
            let debug = format!("{:?}", parsed(body).unwrap_err());
            assert!(debug.contains("max_attempts "), "{body}: {debug}");
        }
    }
}
