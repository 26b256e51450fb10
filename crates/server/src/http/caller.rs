//! Who asks, by the token in `Authorization`, and what that allows.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use prombus_proto::{ErrorCode, Timestamp, Topic};

use super::Http;
use super::error::HttpError;
use crate::auth::{Action, Grant};

/// Who asks. Handlers that take one are closed to those without a token, where tokens are needed.
pub(super) struct Caller {
    grant: Grant,
    /// When the request came.
    now: Timestamp,
}

impl Caller {
    /// Refuses what the caller may not do. To be asked before anything is said about a topic.
    pub(super) fn may(&self, action: Action<'_>) -> Result<(), HttpError> {
        self.grant.allows(action, self.now).map_err(|denied| {
            let message = match action {
                Action::Publish(topic) => format!("publish to {topic}: {denied}"),
                Action::Subscribe(topic) => format!("read {topic}: {denied}"),
                Action::Admin => format!("needs the scope admin: {denied}"),
            };
            HttpError::new(denied.code(), message)
        })
    }

    /// How long the caller's rights last, if they end.
    pub(super) fn rights_last(&self) -> Option<Duration> {
        let end = self.grant.ends_at()?;
        Some(Duration::from_millis(end.0.saturating_sub(self.now.0)))
    }

    /// Whether the caller has anything to do with the topic.
    pub(super) fn may_know_of(&self, topic: &Topic) -> bool {
        let actions = [Action::Admin, Action::Subscribe(topic), Action::Publish(topic)];
        actions.into_iter().any(|action| self.grant.allows(action, self.now).is_ok())
    }
}

impl FromRequestParts<Arc<Http>> for Caller {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, http: &Arc<Http>) -> Result<Self, HttpError> {
        let (authenticator, now) = (&http.gateway.authenticator, http.now());
        if authenticator.is_open() {
            return Ok(Self { grant: Grant::everything(), now });
        }
        let Some(token) = bearer(parts) else {
            let message = "needs a token: send `Authorization: Bearer TOKEN`";
            return Err(HttpError::new(ErrorCode::Unauthorized, message));
        };
        match authenticator.check(token, now) {
            Ok(grant) => Ok(Self { grant, now }),
            Err(bad) => Err(HttpError::new(bad.code(), bad.to_string())),
        }
    }
}

fn bearer(parts: &Parts) -> Option<&str> {
    let value = std::str::from_utf8(parts.headers.get(AUTHORIZATION)?.as_bytes()).ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}
