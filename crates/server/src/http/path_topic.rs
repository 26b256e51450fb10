//! The `{topic}` of a path.

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use prombus_proto::{ErrorCode, Topic};

use super::error::HttpError;

pub(super) struct PathTopic(pub(super) Topic);

impl<S: Send + Sync> FromRequestParts<S> for PathTopic {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, HttpError> {
        let invalid = |reason: &dyn std::fmt::Display| {
            HttpError::new(ErrorCode::BadTopic, format!("the topic in the path: {reason}"))
        };
        let params = RawPathParams::from_request_parts(parts, state).await;
        let params = params.map_err(|reason| invalid(&reason))?;
        let name = params.iter().find(|(name, _)| *name == "topic").map_or("", |(_, topic)| topic);
        Topic::new(name).map(Self).map_err(|reason| invalid(&reason))
    }
}
