//! The parameters of a query, read strictly: what nobody declared, what is there twice, and what
//! cannot be decoded is refused by name, for it is a mistake that would otherwise pass unnoticed.

use std::fmt::Display;
use std::ops::RangeInclusive;

use axum::http::Uri;
use percent_encoding::percent_decode_str;
use prombus_proto::{ErrorCode, Group, Topic};

use super::error::HttpError;

/// The parameters of one request.
#[derive(Debug)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads the query of `uri`, in which only `declared` names may be.
    pub(super) fn read(uri: &Uri, declared: &[&str]) -> Result<Self, HttpError> {
        let mut given: Vec<(String, String)> = Vec::new();
        let parts = uri.query().unwrap_or("").split('&').filter(|part| !part.is_empty());
        for part in parts {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let name = decoded(name)
                .ok_or_else(|| bad_frame("the name of a parameter is not percent-encoded UTF-8"))?;
            if !declared.contains(&name.as_str()) {
                return Err(unknown(&name, declared));
            }
            if given.iter().any(|(known, _)| *known == name) {
                return Err(bad(&name, "is there more than once"));
            }
            let value = decoded(value).ok_or_else(|| bad(&name, "is not percent-encoded UTF-8"))?;
            given.push((name, value));
        }
        Ok(Self(given))
    }

    /// The parameter's text, if it is there.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// What `parse` makes of the parameter, if it is there.
    pub(super) fn parsed<T, E: Display>(
        &self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<T>, HttpError> {
        self.text(name)
            .map(|text| parse(text).map_err(|reason| bad(name, format_args!("is wrong: {reason}"))))
            .transpose()
    }

    /// A whole number within `range`, if it is there.
    pub(super) fn number(
        &self,
        name: &str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<u64>, HttpError> {
        let Some(text) = self.text(name) else { return Ok(None) };
        // `parse` alone would take a plus sign.
        let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse() {
            Ok(number) if is_plain && range.contains(&number) => Ok(Some(number)),
            _ => {
                let (least, most) = (range.start(), range.end());
                let reason = format_args!("must be a whole number from {least} to {most}");
                Err(bad(name, reason))
            }
        }
    }

    /// The parameter `topic`, which has to be there.
    pub(super) fn topic(&self) -> Result<Topic, HttpError> {
        let wrong =
            |reason| named(ErrorCode::BadTopic, "topic", format_args!("is wrong: {reason}"));
        Topic::new(required("topic", self.text("topic"))?).map_err(wrong)
    }

    /// The parameter `group`, which has to be there.
    pub(super) fn group(&self) -> Result<Group, HttpError> {
        let wrong =
            |reason| named(ErrorCode::BadGroup, "group", format_args!("is wrong: {reason}"));
        Group::new(required("group", self.text("group"))?).map_err(wrong)
    }
}

/// Refuses a request that lacks the parameter.
pub(super) fn required<T>(name: &str, value: Option<T>) -> Result<T, HttpError> {
    value.ok_or_else(|| bad(name, "is missing"))
}

/// What is wrong with a parameter: `the parameter limit must be …`.
pub(super) fn bad(name: &str, reason: impl Display) -> HttpError {
    named(ErrorCode::BadFrame, name, reason)
}

fn named(code: ErrorCode, name: &str, reason: impl Display) -> HttpError {
    HttpError::new(code, format!("the parameter {name} {reason}"))
}

fn bad_frame(message: &str) -> HttpError {
    HttpError::new(ErrorCode::BadFrame, message)
}

fn unknown(name: &str, declared: &[&str]) -> HttpError {
    let takes = match declared {
        [] => "none is taken here".to_owned(),
        names => format!("there are {}", names.join(", ")),
    };
    let shown = &name[..name.floor_char_boundary(40)];
    HttpError::new(ErrorCode::BadFrame, format!("no parameter is called {shown:?}; {takes}"))
}

/// Nothing if it cannot be decoded.
fn decoded(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let is_hex = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
    let mut percents = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%');
    if !percents.all(|(at, _)| is_hex(at + 1) && is_hex(at + 2)) {
        return None;
    }
    let spaced = text.replace('+', " ");
    let text = percent_decode_str(&spaced).decode_utf8().ok()?;
    Some(text.into_owned())
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse;

    use super::*;

    fn read(query: &str) -> Result<Query, HttpError> {
        let uri: Uri = format!("/x?{query}").parse().unwrap();
        Query::read(&uri, &["topic", "group", "limit"])
    }

    #[track_caller]
    fn refused<T: std::fmt::Debug>(result: Result<T, HttpError>, reason: &str) {
        let error = result.unwrap_err();
        let debug = format!("{error:?}");
        assert!(debug.contains(reason), "{reason} is not in {debug}");
        assert_eq!(error.into_response().status(), 400);
    }

    #[test]
    fn takes_what_is_declared_in_any_order() {
        let query = read("limit=007&topic=a%2eb&&group=g").unwrap();
        assert_eq!(query.topic().unwrap(), Topic::new("a.b").unwrap());
        assert_eq!(query.group().unwrap(), Group::new("g").unwrap());
        assert_eq!(query.number("limit", 1..=10).unwrap(), Some(7));
        assert_eq!(read("").unwrap().number("limit", 1..=10).unwrap(), None);
        assert_eq!(read("topic=a+b%2B%C3%A9").unwrap().text("topic"), Some("a b+é"));
    }

    #[test]
    fn refuses_by_name_what_is_unknown_repeated_or_cannot_be_decoded() {
        refused(read("tpic=a"), "no parameter is called \\\"tpic\\\"; there are topic, group");
        refused(read("=a"), "no parameter is called");
        refused(read("topic=a&topic=a"), "the parameter topic is there more than once");
        refused(read("%ff=a"), "the name of a parameter is not");
        for bad in ["topic=%ff", "topic=%", "topic=%4", "topic=%zz", "topic=a%"] {
            refused(read(bad), "the parameter topic is not percent-encoded UTF-8");
        }
        let uri: Uri = "/x?a".parse().unwrap();
        refused(Query::read(&uri, &[]), "none is taken here");
    }

    #[test]
    fn refuses_by_name_what_is_missing_or_wrong() {
        refused(read("").unwrap().topic(), "the parameter topic is missing");
        refused(read("topic=").unwrap().topic(), "the parameter topic is wrong: a name must not");
        refused(read("group=A").unwrap().group(), "the parameter group is wrong: a name is made");
        for bad in ["", "0", "11", "+5", "-1", "5.0", "x", "99999999999999999999"] {
            let query = read(&format!("limit={bad}").replace('+', "%2B")).unwrap();
            let reason = "the parameter limit must be a whole number from 1 to 10";
            refused(query.number("limit", 1..=10), reason);
        }
    }
}
