//! What the token of a request allows.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use prombus_bus::Principal;
use prombus_proto::{ErrorCode, Timestamp, Topic};

use super::error::HttpError;
use super::{HttpState, Peer};
use crate::auth::{Action, Grant};

/// The grant of the bearer token. A handler that extracts it rejects requests without a valid
/// token, unless the server is open.
pub(super) struct RequestGrant {
    grant: Grant,
    pub(super) caller: Principal,
    /// When the request arrived.
    now: Timestamp,
}

impl RequestGrant {
    /// Returns an error unless the grant allows `action`. Call it before a response reveals
    /// anything about a topic.
    pub(super) fn require(&self, action: Action<'_>) -> Result<(), HttpError> {
        self.grant.authorize(action, || self.now).map_err(|denied| {
            let message = match action {
                Action::Publish(topic) => format!("publish to {topic}: {denied}"),
                Action::Subscribe(topic) => format!("read {topic}: {denied}"),
                Action::Admin => format!("needs the scope admin: {denied}"),
            };
            HttpError::new(denied.code(), message)
        })
    }

    /// How long the grant remains valid; `None` if it does not expire.
    pub(super) fn remaining(&self) -> Option<Duration> {
        let end = self.grant.ends_at()?;
        Some(Duration::from_millis(end.0.saturating_sub(self.now.0)))
    }

    /// Returns `true` if any action on the topic is allowed.
    pub(super) fn may_see(&self, topic: &Topic) -> bool {
        let actions = [Action::Admin, Action::Subscribe(topic), Action::Publish(topic)];
        actions.into_iter().any(|action| self.grant.authorize(action, || self.now).is_ok())
    }
}

impl FromRequestParts<Arc<HttpState>> for RequestGrant {
    type Rejection = HttpError;

    async fn from_request_parts(
        parts: &mut Parts,
        http: &Arc<HttpState>,
    ) -> Result<Self, HttpError> {
        let (authenticator, now) = (&http.gateway.authenticator, http.now());
        let peer = parts.extensions.get::<Arc<Peer>>().expect("every request carries its peer");
        let known = |grant: Grant| {
            let caller = grant.principal_at(peer.accepted.address);
            http.bus().identify(&peer.connection, &caller);
            Self { grant, caller, now }
        };
        if authenticator.is_open() {
            return Ok(known(Grant::unrestricted()));
        }
        let Some(token) = bearer_token(parts) else {
            let message = "a token is required: send `Authorization: Bearer TOKEN`";
            return Err(HttpError::new(ErrorCode::Unauthorized, message));
        };
        match authenticator.check(token, now) {
            Ok(grant) => {
                peer.accepted.identified.set();
                Ok(known(grant))
            }
            Err(bad) => Err(HttpError::new(bad.code(), bad.to_string())),
        }
    }
}

fn bearer_token(parts: &Parts) -> Option<&str> {
    let value = std::str::from_utf8(parts.headers.get(AUTHORIZATION)?.as_bytes()).ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}
