//! What the token of a request allows.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use prombus_bus::{Principal, Transport};
use prombus_proto::{ErrorCode, Group, Timestamp, Topic};

use super::error::HttpError;
use super::{HttpState, Peer};
use crate::auth::{Action, Caller, Grant, Login, Standing, TokenDigest};

/// The grant of the bearer token. A handler that extracts it rejects requests without a valid
/// token, unless the server is open.
pub(super) struct RequestGrant {
    grant: Grant,
    pub(super) caller: Principal,
    from: Caller,
    /// When the request arrived.
    now: Timestamp,
    http: Arc<HttpState>,
}

impl RequestGrant {
    /// Returns an error unless the grant allows `action`. Call it before a response reveals
    /// anything about a topic.
    pub(super) fn require(&self, action: Action<'_>) -> Result<(), HttpError> {
        let logins = &self.http.gateway.logins;
        Ok(logins.authorize(&self.grant, self.from, action, || self.now)?)
    }

    /// Like [`RequestGrant::require`], for whatever one of two actions may reveal.
    pub(super) fn require_either(
        &self,
        action: Action<'_>,
        other: Action<'_>,
    ) -> Result<(), HttpError> {
        if self.allows(other) { Ok(()) } else { self.require(action) }
    }

    /// Returns an error unless the groups of the topic may be listed, those that
    /// [`RequestGrant::may_see_group`] allows.
    pub(super) fn require_groups(&self, topic: &Topic) -> Result<(), HttpError> {
        if self.grant.scopes.allow_some_group(topic) {
            return Ok(());
        }
        self.require(Action::Manage(topic))
    }

    /// Returns `true` if a list may contain the group.
    pub(super) fn may_see_group(&self, topic: &Topic, group: &Group) -> bool {
        self.allows(Action::Manage(topic)) || self.allows(Action::Consume { topic, group })
    }

    /// Returns `true` if any action on the topic is allowed.
    pub(super) fn may_see(&self, topic: &Topic) -> bool {
        let actions = [Action::Read(topic), Action::Publish(topic), Action::Manage(topic)];
        actions.into_iter().any(|action| self.allows(action))
            || self.grant.scopes.allow_some_group(topic)
    }

    /// How long the grant remains valid; `None` if it does not expire.
    pub(super) fn remaining(&self) -> Option<Duration> {
        let end = self.grant.ends_at()?;
        Some(Duration::from_millis(end.0.saturating_sub(self.now.0)))
    }

    /// Records a change of a topic in the audit log.
    pub(super) fn changed(&self, topic: &Topic, change: &str) {
        let audit = &self.http.gateway.logins.audit;
        audit.changed(&self.grant.identity, self.from, topic, change);
    }

    fn allows(&self, action: Action<'_>) -> bool {
        self.grant.authorize(action, || self.now).is_ok()
    }
}

impl FromRequestParts<Arc<HttpState>> for RequestGrant {
    type Rejection = HttpError;

    async fn from_request_parts(
        parts: &mut Parts,
        http: &Arc<HttpState>,
    ) -> Result<Self, HttpError> {
        let peer = parts.extensions.get::<Arc<Peer>>().expect("every request carries its peer");
        let from = Caller { address: peer.accepted.address, transport: Transport::Http };
        let known = |grant: Grant| {
            let caller = grant.principal_at(from.address);
            http.bus().identify(&peer.connection, &caller);
            Self { grant, caller, from, now: http.now(), http: Arc::clone(http) }
        };
        if http.gateway.authenticator.is_open() {
            return Ok(known(Grant::unrestricted()));
        }
        let Some(token) = bearer_token(parts) else {
            let message = "a token is required: send `Authorization: Bearer TOKEN`";
            return Err(HttpError::new(ErrorCode::Unauthorized, message));
        };
        let digest = TokenDigest::of(token);
        let standing = match *peer.logged_in.lock() {
            Some(last) if last == digest => Standing::SameToken,
            _ => Standing::Stranger,
        };
        let grant = http.gateway.log_in(Login { token, caller: from, standing })?;
        *peer.logged_in.lock() = Some(digest);
        peer.accepted.identified.set();
        Ok(known(grant))
    }
}

fn bearer_token(parts: &Parts) -> Option<&str> {
    let value = std::str::from_utf8(parts.headers.get(AUTHORIZATION)?.as_bytes()).ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}
