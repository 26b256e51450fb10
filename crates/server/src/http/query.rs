//! Query parameters, parsed strictly: an undeclared, repeated or undecodable parameter is an error
//! that names it. Ignoring it would hide a mistake of the client.

use std::fmt::Display;
use std::ops::RangeInclusive;

use axum::http::Uri;
use percent_encoding::percent_decode_str;
use prombus_proto::{ErrorCode, Group, Topic};

use super::error::HttpError;

#[derive(Debug)]
pub(super) struct QueryParams(Vec<(String, String)>);

impl QueryParams {
    /// Parses the query of `uri`. Only the `declared` parameters may occur.
    pub(super) fn parse(uri: &Uri, declared: &[&str]) -> Result<Self, HttpError> {
        let mut given: Vec<(String, String)> = Vec::new();
        let parts = uri.query().unwrap_or("").split('&').filter(|part| !part.is_empty());
        for part in parts {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let Some(name) = decode(name) else {
                let message = "the name of a parameter is not percent-encoded UTF-8";
                return Err(HttpError::new(ErrorCode::BadFrame, message));
            };
            if !declared.contains(&name.as_str()) {
                return Err(unknown(&name, declared));
            }
            if given.iter().any(|(known, _)| *known == name) {
                return Err(invalid(&name, "is given more than once"));
            }
            let value =
                decode(value).ok_or_else(|| invalid(&name, "is not percent-encoded UTF-8"))?;
            given.push((name, value));
        }
        Ok(Self(given))
    }

    /// The decoded value of a parameter.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The value of a parameter, converted by `parse`.
    pub(super) fn parsed<T, E: Display>(
        &self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<T>, HttpError> {
        let wrong = |reason| invalid(name, format_args!("is invalid: {reason}"));
        self.text(name).map(|text| parse(text).map_err(wrong)).transpose()
    }

    /// The value of a parameter as a number within `range`.
    pub(super) fn number(
        &self,
        name: &str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<u64>, HttpError> {
        let Some(text) = self.text(name) else { return Ok(None) };
        // `parse` would accept a plus sign.
        let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse() {
            Ok(number) if is_plain && range.contains(&number) => Ok(Some(number)),
            _ => {
                let (min, max) = (range.start(), range.end());
                Err(invalid(name, format_args!("must be a whole number from {min} to {max}")))
            }
        }
    }

    /// The required parameter `topic`.
    pub(super) fn topic(&self) -> Result<Topic, HttpError> {
        self.name(ErrorCode::BadTopic, "topic", Topic::new)
    }

    /// The required parameter `group`.
    pub(super) fn group(&self) -> Result<Group, HttpError> {
        self.name(ErrorCode::BadGroup, "group", Group::new)
    }

    /// The parameter `group`, which may be absent.
    pub(super) fn optional_group(&self) -> Result<Option<Group>, HttpError> {
        self.text("group").is_some().then(|| self.group()).transpose()
    }

    fn name<T, E: Display>(
        &self,
        code: ErrorCode,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T, HttpError> {
        parse(required(name, self.text(name))?)
            .map_err(|reason| error(code, name, format_args!("is invalid: {reason}")))
    }
}

/// Returns an error if the parameter is missing.
pub(super) fn required<T>(name: &str, value: Option<T>) -> Result<T, HttpError> {
    value.ok_or_else(|| invalid(name, "is missing"))
}

/// The error of an invalid parameter: `the parameter limit must be …`.
pub(super) fn invalid(name: &str, reason: impl Display) -> HttpError {
    error(ErrorCode::BadFrame, name, reason)
}

fn error(code: ErrorCode, name: &str, reason: impl Display) -> HttpError {
    HttpError::new(code, format!("the parameter {name} {reason}"))
}

fn unknown(name: &str, declared: &[&str]) -> HttpError {
    let expected = match declared {
        [] => "this path takes none".to_owned(),
        names => format!("expected {}", names.join(", ")),
    };
    let shown = &name[..name.floor_char_boundary(40)];
    HttpError::new(ErrorCode::BadFrame, format!("unknown parameter {shown:?}; {expected}"))
}

/// Returns `None` for text that is not percent-encoded UTF-8.
fn decode(text: &str) -> Option<String> {
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

    fn parse(query: &str) -> Result<QueryParams, HttpError> {
        let uri: Uri = format!("/x?{query}").parse().unwrap();
        QueryParams::parse(&uri, &["topic", "group", "limit"])
    }

    #[track_caller]
    fn assert_rejected<T: std::fmt::Debug>(result: Result<T, HttpError>, reason: &str) {
        let error = result.unwrap_err();
        let debug = format!("{error:?}");
        assert!(debug.contains(reason), "{reason} is not in {debug}");
        assert_eq!(error.into_response().status(), 400);
    }

    #[test]
    fn accepts_declared_parameters_in_any_order() {
        let query = parse("limit=007&topic=a%2eb&&group=g").unwrap();
        assert_eq!(query.topic().unwrap(), Topic::new("a.b").unwrap());
        assert_eq!(query.group().unwrap(), Group::new("g").unwrap());
        assert_eq!(query.number("limit", 1..=10).unwrap(), Some(7));
        assert_eq!(parse("").unwrap().number("limit", 1..=10).unwrap(), None);
        assert_eq!(parse("topic=a+b%2B%C3%A9").unwrap().text("topic"), Some("a b+é"));
    }

    #[test]
    fn names_the_parameter_that_is_unknown_repeated_or_undecodable() {
        assert_rejected(parse("tpic=a"), "unknown parameter \\\"tpic\\\"; expected topic, group");
        assert_rejected(parse("=a"), "unknown parameter");
        assert_rejected(parse("topic=a&topic=a"), "the parameter topic is given more than once");
        assert_rejected(parse("%ff=a"), "the name of a parameter is not");
        for bad in ["topic=%ff", "topic=%", "topic=%4", "topic=%zz", "topic=a%"] {
            assert_rejected(parse(bad), "the parameter topic is not percent-encoded UTF-8");
        }
        let uri: Uri = "/x?a".parse().unwrap();
        assert_rejected(QueryParams::parse(&uri, &[]), "this path takes none");
    }

    #[test]
    fn names_the_parameter_that_is_missing_or_invalid() {
        assert_rejected(parse("").unwrap().topic(), "the parameter topic is missing");
        assert_rejected(
            parse("topic=").unwrap().topic(),
            "the parameter topic is invalid: a name must not",
        );
        assert_rejected(
            parse("group=A").unwrap().group(),
            "the parameter group is invalid: a name may only",
        );
        for bad in ["", "0", "11", "+5", "-1", "5.0", "x", "99999999999999999999"] {
            let query = parse(&format!("limit={bad}").replace('+', "%2B")).unwrap();
            let reason = "the parameter limit must be a whole number from 1 to 10";
            assert_rejected(query.number("limit", 1..=10), reason);
        }
    }
}
