//! What the token of a request allows.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use prombus_proto::{ErrorCode, Timestamp, Topic};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::error::HttpError;
use super::{HttpState, Peer};
use crate::auth::{Action, Credential, Grant, Secret};
use crate::gateway::Gateway;
use crate::phase::{Phase, next_phase};

/// The grant of the bearer token. A handler that extracts it rejects requests without a valid
/// token, unless the server is open.
pub(super) struct RequestGrant {
    grant: Grant,
    /// What the client presented.
    credential: Option<Credential>,
    /// When the request arrived.
    now: Timestamp,
    /// The phase whose rules gave the grant.
    phase: Phase,
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

    /// Returns what a response without an end needs, to end with the rights of its request.
    pub(super) fn into_watched(self, http: &HttpState) -> WatchedGrant {
        let remaining = remaining(&self.grant, self.now);
        WatchedGrant {
            gateway: Arc::clone(&http.gateway),
            phases: http.phases.clone(),
            credential: self.credential,
            ends_at: remaining.map(|time| Instant::now() + time),
            phase: self.phase,
        }
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
        // Before the rules are read: a reload in between is noticed.
        let phase = *http.phases.borrow();
        let (access, now) = (http.gateway.access(), http.now());
        let authenticator = &access.authenticator;
        if let Some(token) = bearer_token(parts) {
            return match authenticator.check(token, now) {
                Ok(grant) => {
                    let credential = Some(Credential::Token(Secret::from(token)));
                    Ok(Self { grant, credential, now, phase })
                }
                Err(bad) => Err(HttpError::new(bad.code(), bad.to_string())),
            };
        }
        let peer = parts.extensions.get::<Arc<Peer>>();
        // `Authorization` in another form is a mistake that the certificate must not hide.
        let certificate = peer
            .filter(|_| !parts.headers.contains_key(AUTHORIZATION))
            .and_then(|peer| peer.accepted.certificate.clone());
        match authenticator.without_token(certificate.as_deref()) {
            Some(grant) => {
                let credential = certificate.map(Credential::Certificate);
                Ok(Self { grant, credential, now, phase })
            }
            None => {
                let message = "a token is required: send `Authorization: Bearer TOKEN`";
                Err(HttpError::new(ErrorCode::Unauthorized, message))
            }
        }
    }
}

/// The rights of a request that is still being answered.
pub(super) struct WatchedGrant {
    gateway: Arc<Gateway>,
    phases: watch::Receiver<Phase>,
    credential: Option<Credential>,
    ends_at: Option<Instant>,
    phase: Phase,
}

impl WatchedGrant {
    /// Returns when `action` is no longer allowed, or when the server shuts down. Cancel-safe.
    pub(super) async fn ended(&mut self, action: Action<'_>) {
        while !self.phase.is_stopping() {
            let expired = async {
                match self.ends_at {
                    Some(at) => sleep_until(at).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = expired => return,
                phase = next_phase(&mut self.phases, self.phase) => self.phase = phase,
            }
            if !self.is_still_allowed(action) {
                return;
            }
        }
    }

    /// Checks again what the client presented, after a reload.
    fn is_still_allowed(&mut self, action: Action<'_>) -> bool {
        let now = self.gateway.clock.now();
        let access = self.gateway.access();
        let grant = access.authenticator.check_again(self.credential.as_ref(), now);
        let Some(grant) = grant.filter(|grant| grant.authorize(action, || now).is_ok()) else {
            return false;
        };
        self.ends_at = remaining(&grant, now).map(|time| Instant::now() + time);
        true
    }
}

fn remaining(grant: &Grant, now: Timestamp) -> Option<Duration> {
    Some(Duration::from_millis(grant.ends_at()?.0.saturating_sub(now.0)))
}

fn bearer_token(parts: &Parts) -> Option<&str> {
    let value = std::str::from_utf8(parts.headers.get(AUTHORIZATION)?.as_bytes()).ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}
