//! Authentication and authorization.
//!
//! - [`settings`]: the `auth` section of the configuration
//! - [`static_tokens`]: tokens listed in the configuration
//! - [`jwt`]: signed tokens
//! - [`certificate`]: client certificates
//! - [`credential`]: what a client presented
//! - [`bad_token`]: why a token is rejected
//! - [`token_digest`]: what the server keeps of a configured token
//! - [`grant`], [`identity`]: what a valid token allows, until when, and to whom
//! - [`action`]: the operations that need permission
//! - [`scope`], [`rule`], [`pattern`]: the rules of a token and the topics and groups they name
//! - `derived`: dead letters and snapshots, which rules of their origin cover
//! - [`logins`]: lets clients in
//! - [`tickets`]: what web pages present in URLs
//! - [`login_throttle`]: bounds how often tokens can be guessed
//! - [`audit`]: the log of logins, refusals and changes
//! - `recent_map`: a bounded map of what was used lately
//! - [`origin`]: which web pages may connect
//! - [`exposure`]: where a server without tokens may listen
//! - [`secret`]: strings that must not be logged

pub mod action;
pub mod audit;
pub mod bad_token;
pub mod certificate;
pub mod credential;
mod derived;
pub mod exposure;
pub mod grant;
pub mod identity;
pub mod jwt;
pub mod login_throttle;
pub mod logins;
pub mod origin;
pub mod pattern;
mod recent_map;
pub mod rule;
pub mod scope;
pub mod secret;
pub mod settings;
pub mod static_tokens;
pub mod tickets;
pub mod token_digest;

use prombus_proto::Timestamp;

pub use self::action::{Action, ActionKind};
pub use self::audit::{Audit, Caller};
pub use self::bad_token::BadToken;
pub use self::certificate::{CertificateName, ClientCertificate};
pub use self::credential::Credential;
pub use self::exposure::{ExposedWithoutTokens, check_exposure};
pub use self::grant::{Denied, Grant};
pub use self::identity::Identity;
pub use self::logins::{Login, Logins, Standing};
pub use self::origin::{AllowedOrigins, InvalidOrigin, OriginRefused};
pub use self::pattern::{InvalidPattern, NamePattern};
pub use self::rule::InvalidRule;
pub use self::scope::{ScopeList, Scopes};
pub use self::secret::Secret;
pub use self::settings::{
    AuthSettings, AuthSetupError, CertificateSettings, JwtSettings, TokenSettings,
};
pub use self::tickets::Tickets;
pub use self::token_digest::TokenDigest;

use self::certificate::CertificateScopes;
use self::jwt::JwtVerifier;
use self::static_tokens::StaticTokens;

/// Checks tokens and certificates, and returns what they allow.
#[derive(Debug)]
pub struct Authenticator {
    tokens: StaticTokens,
    certificates: CertificateScopes,
    jwt: Option<JwtVerifier>,
}

impl Authenticator {
    /// Reads the key files named in the settings.
    pub fn new(settings: AuthSettings) -> Result<Self, AuthSetupError> {
        let mut tokens = StaticTokens::default();
        for (index, TokenSettings { name, digest, scopes }) in settings.tokens.iter().enumerate() {
            let scopes =
                Scopes::new(scopes).map_err(|reason| AuthSetupError::BadScope { index, reason })?;
            if !tokens.add(*digest, Grant::of_token(name, scopes)) {
                return Err(AuthSetupError::RepeatedToken(index));
            }
        }
        let mut certificates = CertificateScopes::default();
        for (index, CertificateSettings { subject, scopes }) in
            settings.certificates.iter().enumerate()
        {
            let name = CertificateName::parse(subject).ok_or(AuthSetupError::BadSubject(index))?;
            let scopes = Scopes::new(scopes)
                .map_err(|reason| AuthSetupError::BadCertificateScope { index, reason })?;
            if !certificates.add(name, scopes) {
                return Err(AuthSetupError::RepeatedSubject(index));
            }
        }
        Ok(Self { tokens, certificates, jwt: settings.jwt.map(JwtVerifier::new).transpose()? })
    }

    /// Returns `true` if neither tokens nor keys nor certificates are configured, so every client may do everything.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.tokens.is_empty() && self.certificates.is_empty() && self.jwt.is_none()
    }

    /// Returns what the token allows. An open server accepts any token.
    pub fn check(&self, token: &str, now: Timestamp) -> Result<Grant, BadToken> {
        if self.is_open() {
            return Ok(Grant::unrestricted());
        }
        if let Some(grant) = self.tokens.find(&TokenDigest::of(token)) {
            return Ok(grant.clone());
        }
        match &self.jwt {
            Some(jwt) => jwt.check(token, now),
            None => Err(BadToken::Unknown),
        }
    }
}

impl Authenticator {
    /// Returns what a client may do before it presents a token: everything on an open server, otherwise
    /// what its certificate allows.
    #[must_use]
    pub fn without_token(&self, certificate: Option<&ClientCertificate>) -> Option<Grant> {
        if self.is_open() {
            return Some(Grant::unrestricted());
        }
        self.certificates.find(certificate?)
    }

    /// Checks again what a client presented, after a reload. Returns `None` if it no longer allows
    /// anything.
    #[must_use]
    pub fn check_again(&self, credential: Option<&Credential>, now: Timestamp) -> Option<Grant> {
        match credential {
            Some(Credential::Token(token)) => self.check(token.reveal(), now).ok(),
            Some(Credential::Certificate(certificate)) => self.without_token(Some(certificate)),
            None => self.without_token(None),
        }
    }
}

#[cfg(test)]
mod tests;
