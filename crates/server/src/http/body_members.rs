//! The members of a JSON body, parsed strictly: an undeclared or malformed member is an error that names it. Ignoring
//! it would hide a mistake of the client.

use std::fmt::Display;
use std::ops::RangeInclusive;

use axum::extract::Request;
use prombus_proto::{ErrorCode, EventId, Group};
use serde_json::{Map, Value};

use super::HttpState;
use super::body::RequestBody;
use super::error::HttpError;
use super::query::QueryParams;

#[derive(Debug)]
pub(super) struct BodyMembers(Map<String, Value>);

impl BodyMembers {
    /// Receives the body of a request without query parameters. Only the `declared` members may occur.
    pub(super) async fn receive(
        http: &HttpState,
        request: Request,
        max_bytes: usize,
        declared: &[&str],
    ) -> Result<Self, HttpError> {
        let (head, body) = request.into_parts();
        QueryParams::parse(&head.uri, &[])?;
        let stall_timeout = http.gateway.settings.slow_consumer_timeout;
        let body = RequestBody::new(&head.headers, body, max_bytes, stall_timeout)?;
        Self::parse(&body.collect().await?, declared)
    }

    /// Parses a JSON object. An empty body is one without members.
    pub(super) fn parse(body: &[u8], declared: &[&str]) -> Result<Self, HttpError> {
        if body.is_empty() {
            return Ok(Self(Map::new()));
        }
        let value: Value = serde_json::from_slice(body).map_err(|error| {
            HttpError::new(ErrorCode::BadJson, format!("the body: not JSON: {error}"))
        })?;
        let Value::Object(members) = value else {
            return Err(invalid("the body", "must be a JSON object"));
        };
        match members.keys().find(|name| !declared.contains(&name.as_str())) {
            Some(name) => {
                let shown = &name[..name.floor_char_boundary(40)];
                let expected = declared.join(", ");
                let message = format!("unknown member {shown:?}; expected {expected}");
                Err(HttpError::new(ErrorCode::BadFrame, message))
            }
            None => Ok(Self(members)),
        }
    }

    /// Returns a member, or an error if it is missing. It may be null.
    pub(super) fn required(&self, name: &str) -> Result<&Value, HttpError> {
        self.0.get(name).ok_or_else(|| missing(name))
    }

    /// Returns `true` if the member is there and not null.
    pub(super) fn has(&self, name: &str) -> bool {
        self.present(name).is_some()
    }

    /// The value of a member as a number within `range`.
    pub(super) fn number(
        &self,
        name: &str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<u64>, HttpError> {
        let number = |value: &Value| {
            value.as_u64().filter(|number| range.contains(number)).ok_or_else(|| {
                let (min, max) = (range.start(), range.end());
                invalid(name, format_args!("must be a whole number from {min} to {max}"))
            })
        };
        self.present(name).map(number).transpose()
    }

    /// The value of a member that is true or false, and false if it is absent.
    pub(super) fn flag(&self, name: &str) -> Result<bool, HttpError> {
        match self.present(name) {
            Some(value) => value.as_bool().ok_or_else(|| invalid(name, "must be true or false")),
            None => Ok(false),
        }
    }

    pub(super) fn text(&self, name: &str) -> Result<Option<&str>, HttpError> {
        let text = |value| Value::as_str(value).ok_or_else(|| invalid(name, "must be a string"));
        self.present(name).map(text).transpose()
    }

    /// The member `group`.
    pub(super) fn group(&self) -> Result<Option<Group>, HttpError> {
        let group = |text: &str| {
            Group::new(text).map_err(|reason| {
                HttpError::new(ErrorCode::BadGroup, format!("group is invalid: {reason}"))
            })
        };
        self.text("group")?.map(group).transpose()
    }

    pub(super) fn event_id(&self, name: &str) -> Result<Option<EventId>, HttpError> {
        self.text(name)?.map(|text| event_id(name, text)).transpose()
    }

    /// The value of a member as a list of 1 to `max` ids.
    pub(super) fn event_ids(
        &self,
        name: &str,
        max: usize,
    ) -> Result<Option<Vec<EventId>>, HttpError> {
        let Some(value) = self.present(name) else { return Ok(None) };
        let wrong = || invalid(name, format_args!("must be an array of 1 to {max} ids"));
        let values = value.as_array().filter(|values| (1..=max).contains(&values.len()));
        let ids = values.ok_or_else(wrong)?.iter().map(|value| {
            let text = value.as_str().ok_or_else(wrong)?;
            event_id(name, text)
        });
        ids.collect::<Result<_, _>>().map(Some)
    }

    /// Treats `null` like an absent member.
    fn present(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }
}

pub(super) fn missing(name: &str) -> HttpError {
    invalid(name, "is missing")
}

/// The error of an invalid member: `seq must be …`.
pub(super) fn invalid(name: &str, reason: impl Display) -> HttpError {
    HttpError::new(ErrorCode::BadFrame, format!("{name} {reason}"))
}

fn event_id(name: &str, text: &str) -> Result<EventId, HttpError> {
    EventId::new(text).map_err(|reason| invalid(name, format_args!("is invalid: {reason}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(body: &str) -> Result<BodyMembers, HttpError> {
        BodyMembers::parse(body.as_bytes(), &["group", "ids", "limit", "all"])
    }

    #[track_caller]
    fn assert_rejected<T: std::fmt::Debug>(result: Result<T, HttpError>, reason: &str) {
        let debug = format!("{:?}", result.unwrap_err());
        assert!(debug.contains(reason), "{reason} is not in {debug}");
    }

    #[test]
    fn accepts_declared_members() {
        let body = r#"{"group": "a.b", "ids": ["x", "y z"], "limit": 7, "all": true}"#;
        let members = members(body).unwrap();
        assert_eq!(members.group().unwrap(), Some(Group::new("a.b").unwrap()));
        let ids = ["x", "y z"].map(|id| EventId::new(id).unwrap());
        assert_eq!(members.event_ids("ids", 2).unwrap(), Some(ids.to_vec()));
        assert_eq!(members.number("limit", 1..=7).unwrap(), Some(7));
        assert!(members.flag("all").unwrap() && members.has("all"));
    }

    #[test]
    fn absent_members_and_null_are_the_same() {
        for body in ["", "{}", r#"{"group": null, "ids": null, "limit": null, "all": null}"#] {
            let members = members(body).unwrap();
            assert_eq!(members.group().unwrap(), None, "{body}");
            assert_eq!(members.event_ids("ids", 2).unwrap(), None);
            assert_eq!(members.number("limit", 1..=7).unwrap(), None);
            assert!(!members.flag("all").unwrap() && !members.has("all"));
        }
        assert_rejected(members("{}").unwrap().required("group"), "group is missing");
        assert!(members(r#"{"group": null}"#).unwrap().required("group").unwrap().is_null());
    }

    #[test]
    fn names_the_member_that_is_unknown_or_malformed() {
        for body in [" ", "{", "{}{}", "nonsense"] {
            assert_rejected(members(body), "the body: not JSON");
        }
        assert_rejected(members("[]"), "the body must be a JSON object");
        let expected = "unknown member \\\"grp\\\"; expected group, ids, limit, all";
        assert_rejected(members(r#"{"grp": 1}"#), expected);
        for value in ["0", "8", "-1", "1.5", "\"7\"", "[]"] {
            let members = members(&format!(r#"{{"limit": {value}}}"#)).unwrap();
            let reason = "limit must be a whole number from 1 to 7";
            assert_rejected(members.number("limit", 1..=7), reason);
        }
        for value in ["[]", r#"["a", "b", "c"]"#, "[1]", r#""a""#] {
            let members = members(&format!(r#"{{"ids": {value}}}"#)).unwrap();
            assert_rejected(members.event_ids("ids", 2), "ids must be an array of 1 to 2 ids");
        }
        let empty = members(r#"{"ids": [""]}"#).unwrap();
        assert_rejected(empty.event_ids("ids", 2), "ids is invalid: ");
        let wrong = members(r#"{"group": "A", "all": 1}"#).unwrap();
        assert_rejected(wrong.group(), "group is invalid: ");
        assert_rejected(wrong.flag("all"), "all must be true or false");
        assert_rejected(members(r#"{"group": 1}"#).unwrap().group(), "must be a string");
    }
}
