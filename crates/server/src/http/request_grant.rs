//! What the token of a request allows.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use prombus_bus::{Principal, Transport};
use prombus_proto::{ErrorCode, Group, Timestamp, Topic};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::error::HttpError;
use super::{HttpState, Peer};
use crate::auth::{Action, Caller, Credential, Grant, Login, Secret, Standing, TokenDigest};
use crate::gateway::Gateway;
use crate::gateway::upgrade::ticket_in;
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
    pub(super) caller: Principal,
    from: Caller,
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

    /// Returns what a long response needs, to end with the rights of its request.
    pub(super) fn into_watched(self) -> WatchedGrant {
        let remaining = remaining(&self.grant, self.now);
        WatchedGrant {
            gateway: Arc::clone(&self.http.gateway),
            phases: self.http.phases.clone(),
            credential: self.credential,
            ends_at: remaining.map(|time| Instant::now() + time),
            phase: self.phase,
        }
    }

    /// Returns what the client presented, and whose limits apply to it.
    pub(super) fn into_credential(self) -> (Option<Credential>, Principal) {
        (self.credential, self.caller)
    }

    /// Records a change of a topic in the audit log.
    pub(super) fn changed(&self, topic: &Topic, change: &str) {
        let audit = &self.http.gateway.logins.audit;
        audit.changed(&self.grant.identity, self.from, topic, change);
    }

    /// Records an operation on the whole server in the audit log.
    pub(super) fn administered(&self, operation: &str) {
        let audit = &self.http.gateway.logins.audit;
        audit.administered(&self.grant.identity, self.from, operation);
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
        // Before the rules are read: a reload in between is noticed.
        let phase = *http.phases.borrow();
        let now = http.now();
        let known = |grant: Grant, credential| {
            let caller = grant.principal_at(from.address);
            http.bus().identify(&peer.connection, &caller);
            Self { grant, credential, now, phase, caller, from, http: Arc::clone(http) }
        };
        if let Some(token) = bearer_token(parts) {
            let digest = TokenDigest::of(token);
            let standing = match *peer.logged_in.lock() {
                Some(last) if last == digest => Standing::SameToken,
                _ => Standing::Stranger,
            };
            let grant = http.gateway.log_in(Login { token, caller: from, standing })?;
            *peer.logged_in.lock() = Some(digest);
            peer.accepted.identified.set();
            return Ok(known(grant, Some(Credential::Token(Secret::from(token)))));
        }
        // `Authorization` in another form is a mistake that the certificate must not hide.
        let certificate = match parts.headers.contains_key(AUTHORIZATION) {
            true => None,
            false => peer.accepted.certificate.clone(),
        };
        let access = http.gateway.access();
        let Some(grant) = access.authenticator.without_token(certificate.as_deref()) else {
            let message = "a token is required: send `Authorization: Bearer TOKEN`";
            return Err(HttpError::new(ErrorCode::Unauthorized, message));
        };
        if peer.accepted.identified.set() {
            http.gateway.logins.recognized(&grant, from);
        }
        Ok(known(grant, certificate.map(Credential::Certificate)))
    }
}

/// Like [`RequestGrant`], for a request to which browsers cannot add a token: its URL may have a ticket instead.
pub(super) struct TicketGrant(pub(super) RequestGrant);

impl FromRequestParts<Arc<HttpState>> for TicketGrant {
    type Rejection = HttpError;

    async fn from_request_parts(
        parts: &mut Parts,
        http: &Arc<HttpState>,
    ) -> Result<Self, HttpError> {
        let has_token = parts.headers.contains_key(AUTHORIZATION);
        let Some(ticket) = ticket_in(&parts.uri).filter(|_| !has_token) else {
            return RequestGrant::from_request_parts(parts, http).await.map(Self);
        };
        let peer = parts.extensions.get::<Arc<Peer>>().expect("every request carries its peer");
        let from = Caller { address: peer.accepted.address, transport: Transport::Http };
        let (phase, now) = (*http.phases.borrow(), http.now());
        let (credential, grant) = http.gateway.redeem(ticket, from)?;
        peer.accepted.identified.set();
        let caller = grant.principal_at(from.address);
        http.bus().identify(&peer.connection, &caller);
        let http = Arc::clone(http);
        Ok(Self(RequestGrant { grant, credential, now, phase, caller, from, http }))
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

    /// Returns `true` if `action` is no longer allowed. A response with an end is completed when the server
    /// shuts down.
    pub(super) fn has_ended(&mut self, action: Action<'_>) -> bool {
        let phase = *self.phases.borrow();
        if phase != self.phase && !phase.is_stopping() {
            self.phase = phase;
            if !self.is_still_allowed(action) {
                return true;
            }
        }
        self.ends_at.is_some_and(|at| Instant::now() >= at)
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
