//! Who may do what.
//!
//! | idea | file |
//! |---|---|
//! | the settings, and what can be wrong with them | [`settings`] |
//! | tokens that stand in the configuration | [`static_tokens`] |
//! | signed tokens | [`jwt`] |
//! | why a token is refused | [`bad_token`] |
//! | what a connection may do, and until when | [`grant`] |
//! | the rules, and the topics they speak of | [`scope`], [`pattern`] |
//! | which web pages may connect | [`origin`] |
//! | where a server without tokens may listen | [`exposure`] |
//! | a text that nobody is to see | [`secret`] |

pub mod bad_token;
pub mod exposure;
pub mod grant;
pub mod jwt;
pub mod origin;
pub mod pattern;
pub mod scope;
pub mod secret;
pub mod settings;
pub mod static_tokens;

use prombus_proto::Timestamp;

pub use self::bad_token::BadToken;
pub use self::exposure::{ExposedWithoutTokens, check_exposure};
pub use self::grant::{Denied, Grant};
pub use self::origin::{AllowedOrigins, InvalidOrigin, OriginRefused};
pub use self::pattern::{InvalidPattern, TopicPattern};
pub use self::scope::{Action, InvalidRule, ScopeWords, Scopes};
pub use self::secret::Secret;
pub use self::settings::{AuthSettings, AuthSetupError, JwtSettings, TokenSettings};

use self::jwt::JwtVerifier;
use self::static_tokens::StaticTokens;

/// Tells what a token allows.
#[derive(Debug)]
pub struct Authenticator {
    tokens: StaticTokens,
    jwt: Option<JwtVerifier>,
}

impl Authenticator {
    /// Reads the key files that the settings name.
    pub fn new(settings: AuthSettings) -> Result<Self, AuthSetupError> {
        let mut tokens = StaticTokens::default();
        for (index, TokenSettings { token, scopes }) in settings.tokens.iter().enumerate() {
            if token.reveal().is_empty() {
                return Err(AuthSetupError::EmptyToken(index));
            }
            let scopes =
                Scopes::new(scopes).map_err(|reason| AuthSetupError::BadScope { index, reason })?;
            if !tokens.add(token.reveal(), scopes) {
                return Err(AuthSetupError::RepeatedToken(index));
            }
        }
        Ok(Self { tokens, jwt: settings.jwt.map(JwtVerifier::new).transpose()? })
    }

    /// Whether nothing is configured, so that everybody may do everything.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.tokens.is_empty() && self.jwt.is_none()
    }

    /// What the token gives at this moment. An open server takes any.
    pub fn check(&self, token: &str, now: Timestamp) -> Result<Grant, BadToken> {
        if self.is_open() {
            return Ok(Grant::everything());
        }
        if let Some(scopes) = self.tokens.find(token) {
            return Ok(Grant { scopes: scopes.clone(), expires_at: None, subject: None });
        }
        match &self.jwt {
            Some(jwt) => jwt.check(token, now),
            None => Err(BadToken::Unknown),
        }
    }
}

#[cfg(test)]
mod tests;
