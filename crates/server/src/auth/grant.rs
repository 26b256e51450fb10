//! What a connection may do, and until when.

use prombus_proto::{ErrorCode, Timestamp};
use thiserror::Error;

use super::scope::{Action, Scopes};

/// How far the clocks of the issuer and of this server may differ.
pub const CLOCK_TOLERANCE_MS: u64 = 5_000;

/// What a valid token gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// What it allows.
    pub scopes: Scopes,
    /// When the token says that it ends. The rights last [`CLOCK_TOLERANCE_MS`] longer.
    pub expires_at: Option<Timestamp>,
    /// Whom the token was issued to, if it says.
    pub subject: Option<String>,
}

/// Why an action is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Denied {
    /// The token has run out; a new one helps.
    #[error("the token has expired, authenticate again")]
    Expired,
    /// The token does not allow it.
    #[error("the token does not allow this")]
    Forbidden,
}

impl Grant {
    /// All rights for ever: what everybody has where no tokens are configured.
    #[must_use]
    pub fn everything() -> Self {
        Self { scopes: Scopes::everything(), expires_at: None, subject: None }
    }

    /// Whether the action is allowed at this moment.
    pub fn allows(&self, action: Action<'_>, now: Timestamp) -> Result<(), Denied> {
        self.allows_at(action, || now)
    }

    /// As [`Grant::allows`], and asks for the time only where the rights end.
    pub fn allows_at(
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

    /// The first moment without rights, if there is one: for whoever has to stop deliveries then.
    #[must_use]
    pub fn ends_at(&self) -> Option<Timestamp> {
        self.expires_at.map(|expiry| expiry.plus_ms(CLOCK_TOLERANCE_MS))
    }
}

impl Denied {
    /// As every wire says it.
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
    fn rights_end_five_seconds_after_the_expiry() {
        let topic = Topic::new("a").unwrap();
        let grant = Grant { expires_at: Some(Timestamp(10_000)), ..Grant::everything() };
        assert_eq!(grant.ends_at(), Some(Timestamp(15_000)));
        for action in [Action::Publish(&topic), Action::Subscribe(&topic), Action::Admin] {
            assert_eq!(grant.allows(action, Timestamp(14_999)), Ok(()));
            assert_eq!(grant.allows(action, Timestamp(15_000)), Err(Denied::Expired));
            assert_eq!(Grant::everything().allows(action, Timestamp(u64::MAX)), Ok(()));
        }
    }

    #[test]
    fn expired_and_forbidden_are_different_answers() {
        let scopes = Scopes::new(&"publish:a".into()).unwrap();
        let grant = Grant { scopes, expires_at: Some(Timestamp(0)), subject: None };
        let denied = grant.allows(Action::Admin, Timestamp(1)).unwrap_err();
        assert_eq!((denied, denied.code()), (Denied::Forbidden, ErrorCode::Forbidden));
        let denied = grant.allows(Action::Admin, Timestamp(5_000)).unwrap_err();
        assert_eq!((denied, denied.code()), (Denied::Expired, ErrorCode::Unauthorized));
    }
}
