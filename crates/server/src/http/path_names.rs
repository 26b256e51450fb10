//! The `{topic}` and the `{group}` of a path.

use std::fmt::Display;

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use prombus_proto::{ErrorCode, Group, Topic};

use super::error::HttpError;

pub(super) struct PathTopic(pub(super) Topic);

/// A topic, and a group of it.
pub(super) struct PathGroup(pub(super) Topic, pub(super) Group);

impl<S: Send + Sync> FromRequestParts<S> for PathTopic {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, HttpError> {
        Ok(Self(PathNames::decode(parts, state).await?.topic()?))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for PathGroup {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, HttpError> {
        let names = PathNames::decode(parts, state).await?;
        Ok(Self(names.topic()?, names.group()?))
    }
}

/// The parts of a path that the route leaves open, percent-decoded.
struct PathNames(RawPathParams);

impl PathNames {
    async fn decode<S: Send + Sync>(parts: &mut Parts, state: &S) -> Result<Self, HttpError> {
        let params = RawPathParams::from_request_parts(parts, state).await;
        params.map(Self).map_err(|reason| {
            HttpError::new(ErrorCode::BadFrame, format!("the path is invalid: {reason}"))
        })
    }

    fn topic(&self) -> Result<Topic, HttpError> {
        self.parsed("topic", ErrorCode::BadTopic, Topic::new)
    }

    fn group(&self) -> Result<Group, HttpError> {
        self.parsed("group", ErrorCode::BadGroup, Group::new)
    }

    fn parsed<T, E: Display>(
        &self,
        name: &str,
        code: ErrorCode,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T, HttpError> {
        let text = self.0.iter().find(|(known, _)| *known == name).map_or("", |(_, text)| text);
        parse(text)
            .map_err(|reason| HttpError::new(code, format!("the {name} in the path: {reason}")))
    }
}
