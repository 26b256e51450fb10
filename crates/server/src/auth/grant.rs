//! What a connection or request may do, and until when.

use std::net::IpAddr;
use std::sync::Arc;

use prombus_bus::Principal;
use prombus_proto::{ErrorCode, Timestamp};
use thiserror::Error;

use super::action::Action;
use super::identity::Identity;
use super::scope::Scopes;

/// Tolerated difference between the clocks of the issuer and of this server.
pub const CLOCK_TOLERANCE_MS: u64 = 5_000;

/// The rights that a valid token gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub scopes: Scopes,
    /// The expiry stated in the token. The grant ends [`CLOCK_TOLERANCE_MS`] later.
    pub expires_at: Option<Timestamp>,
    pub identity: Identity,
    /// The owner of the limits that apply, or `None` for those of the client's address.
    pub principal: Option<Principal>,
}

/// Why an action is denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Denied {
    #[error("the token has expired, authenticate again")]
    Expired,
    #[error("the token does not allow this")]
    Forbidden,
}

impl Grant {
    /// Everything, forever: the grant of every client of an open server.
    #[must_use]
    pub fn unrestricted() -> Self {
        Self {
            scopes: Scopes::unrestricted(),
            expires_at: None,
            identity: Identity::Anyone,
            principal: None,
        }
    }

    /// The grant of a configured token, which does not expire.
    #[must_use]
    pub fn of_token(name: &str, scopes: Scopes) -> Self {
        let name: Arc<str> = name.into();
        let principal = Some(Principal::Token(Arc::clone(&name)));
        Self { scopes, expires_at: None, identity: Identity::Token(name), principal }
    }

    /// The grant of a client certificate with this name, which ends with the certificate.
    #[must_use]
    pub fn of_certificate(name: &str, scopes: Scopes, expires_at: Timestamp) -> Self {
        let name: Arc<str> = name.into();
        let principal = Some(Principal::Certificate(Arc::clone(&name)));
        let identity = Identity::Certificate(name);
        Self { scopes, expires_at: Some(expires_at), identity, principal }
    }

    /// Returns the name of the client: that of a configured token or certificate, or the subject of a signed
    /// token.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.identity.name()
    }

    /// Returns whose limits apply to a client at `address`.
    #[must_use]
    pub fn principal_at(&self, address: IpAddr) -> Principal {
        self.principal.clone().unwrap_or_else(|| Principal::of_address(address))
    }

    /// Checks whether the action is allowed now. Reads the clock only if the grant ends at all.
    pub fn authorize(
        &self,
        action: Action<'_>,
        now: impl FnOnce() -> Timestamp,
    ) -> Result<(), Denied> {
        if self.ends_at().is_some_and(|end| now() >= end) {
            Err(Denied::Expired)
        } else if self.scopes.allow(action) {
            Ok(())
        } else {
            Err(Denied::Forbidden)
        }
    }

    /// When the grant ends, clock tolerance included; `None` if it does not.
    #[must_use]
    pub fn ends_at(&self) -> Option<Timestamp> {
        self.expires_at.map(|expiry| expiry.plus_ms(CLOCK_TOLERANCE_MS))
    }
}

impl Denied {
    #[must_use]
    pub const fn code(self) -> ErrorCode {
        match self {
            Self::Expired => ErrorCode::Unauthorized,
            Self::Forbidden => ErrorCode::Forbidden,
        }
    }
}

#[cfg(test)]
mod tests {
    use prombus_proto::Topic;

    use super::*;

    #[test]
    fn ends_five_seconds_after_the_expiry() {
        let topic = Topic::new("a").unwrap();
        let grant = Grant { expires_at: Some(Timestamp(10_000)), ..Grant::unrestricted() };
        assert_eq!(grant.ends_at(), Some(Timestamp(15_000)));
        for action in [Action::Publish(&topic), Action::Read(&topic), Action::Admin] {
            assert_eq!(grant.authorize(action, || Timestamp(14_999)), Ok(()));
            assert_eq!(grant.authorize(action, || Timestamp(15_000)), Err(Denied::Expired));
            assert_eq!(Grant::unrestricted().authorize(action, || Timestamp(u64::MAX)), Ok(()));
        }
    }

    #[test]
    fn distinguishes_expired_from_forbidden() {
        let scopes = Scopes::new(&"publish:a".into()).unwrap();
        let grant = Grant { expires_at: Some(Timestamp(0)), ..Grant::of_token("t", scopes) };
        let denied = grant.authorize(Action::Admin, || Timestamp(1)).unwrap_err();
        assert_eq!((denied, denied.code()), (Denied::Forbidden, ErrorCode::Forbidden));
        let denied = grant.authorize(Action::Admin, || Timestamp(5_000)).unwrap_err();
        assert_eq!((denied, denied.code()), (Denied::Expired, ErrorCode::Unauthorized));
    }
}
