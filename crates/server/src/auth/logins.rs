//! Logins: checks tokens, throttles guesses, and keeps the audit log.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prombus_bus::{Metrics, Network, Rate, Refusal};
use prombus_proto::{ErrorCode, Timestamp};

use super::Authenticator;
use super::action::Action;
use super::audit::{Audit, Caller};
use super::grant::{Denied, Grant};
use super::identity::Identity;
use super::login_throttle::{Guesser, LoginThrottle};
use super::token_digest::TokenDigest;

/// Lets clients in. Knows no tokens, so it stays when they are replaced.
pub struct Logins {
    /// `None` without rate limits.
    throttle: Option<Mutex<LoginThrottle>>,
    pub audit: Audit,
}

/// A token that a client presents.
#[derive(Clone, Copy)]
pub struct Login<'a> {
    pub token: &'a str,
    pub caller: Caller,
    pub standing: Standing<'a>,
}

/// Whether the client has logged in before on its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing<'a> {
    Stranger,
    /// It logged in before on this connection, and is not throttled with its neighbours.
    LoggedIn(&'a Identity),
    /// It logged in before on this connection with the same token, which is no guess and not worth a line
    /// in the log.
    SameToken,
}

impl Logins {
    #[must_use]
    pub fn new(rate: Option<Rate>) -> Self {
        let throttle = rate.map(|rate| Mutex::new(LoginThrottle::new(rate)));
        Self { throttle, audit: Audit::default() }
    }

    /// Returns what the token allows. An open server accepts any token, and keeps no record of it.
    ///
    /// # Errors
    ///
    /// `bad_token`, or `rate_limited` after too many guesses from the address.
    pub fn log_in(
        &self,
        authenticator: &Authenticator,
        login: Login<'_>,
        metrics: &Metrics,
        now: Timestamp,
    ) -> Result<Grant, Refusal> {
        if authenticator.is_open() {
            return Ok(Grant::unrestricted());
        }
        let Login { token, caller, standing } = login;
        let digest = TokenDigest::of(token);
        let network = Network::of(caller.address);
        let instant = instant();
        let guesser = match standing {
            // Clients that nothing tells from others share no bucket.
            Standing::LoggedIn(identity) if identity.name().is_some() => {
                Some(Guesser::Client(identity.clone()))
            }
            Standing::LoggedIn(_) | Standing::Stranger => Some(Guesser::Stranger(network)),
            Standing::SameToken => None,
        };
        let throttle = self.throttle.as_ref().zip(guesser.as_ref());
        if let Some((throttle, guesser)) = throttle {
            throttle.lock().admit(guesser, network, digest, instant).map_err(|wait| {
                let refusal = throttled(wait);
                metrics.failed_login();
                self.audit.failed_login(caller, &refusal, instant);
                refusal
            })?;
        }
        let checked = authenticator.check(token, now);
        if let Some((throttle, guesser)) = throttle {
            match &checked {
                Ok(_) => throttle.lock().remember(network, digest),
                Err(bad) if bad.is_guess() => throttle.lock().guessed(guesser, instant),
                Err(_) => {}
            }
        }
        match checked {
            Ok(grant) => {
                if standing != Standing::SameToken {
                    self.audit.login(&grant.identity, caller, instant);
                }
                Ok(grant)
            }
            Err(bad) => {
                metrics.failed_login();
                self.audit.failed_login(caller, &bad, instant);
                Err(Refusal::new(ErrorCode::BadToken, bad.to_string()))
            }
        }
    }

    /// Records that a client was let in without a token, unless the server is open.
    pub fn recognized(&self, grant: &Grant, caller: Caller) {
        if matches!(grant.identity, Identity::Certificate(_)) {
            self.audit.login(&grant.identity, caller, instant());
        }
    }

    /// Checks that the grant allows `action` now, and records it if it does not.
    ///
    /// # Errors
    ///
    /// `forbidden`, or `unauthorized` if the token has expired.
    pub fn authorize(
        &self,
        grant: &Grant,
        caller: Caller,
        action: Action<'_>,
        now: impl FnOnce() -> Timestamp,
    ) -> Result<(), Refusal> {
        grant.authorize(action, now).map_err(|denied| {
            if denied == Denied::Forbidden {
                self.audit.refused(&grant.identity, caller, action, instant());
            }
            Refusal::new(denied.code(), format!("{action}: {denied}"))
        })
    }
}

/// The clock that tests can stop.
fn instant() -> Instant {
    tokio::time::Instant::now().into_std()
}

fn throttled(wait: Duration) -> Refusal {
    // A wait of 0 ms would be told as none.
    let wait = wait.max(Duration::from_millis(1));
    let message = "too many failed logins from this address";
    Refusal { retry_after: Some(wait), ..Refusal::new(ErrorCode::RateLimited, message) }
}
