//! The claims of a signed token.

use std::sync::Arc;

use prombus_bus::Principal;
use prombus_proto::Timestamp;
use serde::Deserialize;

use crate::auth::bad_token::BadToken;
use crate::auth::grant::{CLOCK_TOLERANCE_MS, Grant};
use crate::auth::identity::Identity;
use crate::auth::scope::{ScopeList, Scopes};

#[derive(Debug, Deserialize)]
pub(super) struct Claims {
    exp: Option<NumericDate>,
    nbf: Option<NumericDate>,
    iss: Option<String>,
    aud: Option<Audience>,
    sub: Option<String>,
    scope: Option<ScopeList>,
    scopes: Option<ScopeList>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Several(Vec<String>),
}

/// Seconds since the epoch, not necessarily whole.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(transparent)]
struct NumericDate(f64);

impl NumericDate {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "casts from floats saturate, which suits times before the epoch and far in the \
                  future"
    )]
    fn timestamp(self) -> Timestamp {
        Timestamp((self.0 * 1000.0).round() as u64)
    }
}

impl Claims {
    pub(super) fn check_issuer(&self, expected: Option<&str>) -> Result<(), BadToken> {
        match expected {
            Some(_) if self.iss.as_deref() != expected => Err(BadToken::WrongIssuer),
            _ => Ok(()),
        }
    }

    pub(super) fn check_audience(&self, expected: Option<&str>) -> Result<(), BadToken> {
        let Some(expected) = expected else {
            return Ok(());
        };
        let is_for_us = match &self.aud {
            None => false,
            Some(Audience::One(name)) => name == expected,
            Some(Audience::Several(names)) => names.iter().any(|name| name == expected),
        };
        if is_for_us { Ok(()) } else { Err(BadToken::WrongAudience) }
    }

    pub(super) fn check_has_expiry(&self) -> Result<(), BadToken> {
        self.exp.map(|_| ()).ok_or(BadToken::NoExpiry)
    }

    pub(super) fn check_time(&self, now: Timestamp) -> Result<(), BadToken> {
        if self.exp.is_some_and(|exp| now >= exp.timestamp().plus_ms(CLOCK_TOLERANCE_MS)) {
            return Err(BadToken::Expired);
        }
        if self.nbf.is_some_and(|nbf| now.plus_ms(CLOCK_TOLERANCE_MS) < nbf.timestamp()) {
            return Err(BadToken::NotYetValid);
        }
        Ok(())
    }

    pub(super) fn into_grant(self) -> Result<Grant, BadToken> {
        let scopes = match (self.scope, self.scopes) {
            // Rules are ordered, and two claims have no order.
            (Some(_), Some(_)) => return Err(BadToken::BadScopes),
            (scope, scopes) => scope.or(scopes).unwrap_or_default(),
        };
        let principal = self.sub.as_deref().map(|subject| Principal::Subject {
            issuer: self.iss.as_deref().map(Into::into),
            subject: subject.into(),
        });
        Ok(Grant {
            principal,
            scopes: Scopes::from_claim(&scopes).map_err(|_| BadToken::BadScopes)?,
            expires_at: self.exp.map(NumericDate::timestamp),
            identity: Identity::Subject(self.sub.map(Arc::from)),
        })
    }
}
