//! The rules of access: everything under `auth`, replaced as a whole by a reload.

use crate::auth::{
    AllowedOrigins, AuthSettings, Authenticator, CertificateSettings, JwtSettings, ScopeList,
    TokenSettings,
};
use crate::config::AuthConfig;
use crate::server::StartError;

#[derive(Debug)]
pub struct Access {
    pub authenticator: Authenticator,
    /// The origins whose web pages may connect.
    pub origins: AllowedOrigins,
}

impl Access {
    /// Reads the key files named in the settings.
    ///
    /// # Errors
    ///
    /// If a file, a scope or an origin is unusable.
    pub fn new(auth: &AuthConfig) -> Result<Self, StartError> {
        let authenticator = Authenticator::new(auth_settings(auth))?;
        let mut origins = AllowedOrigins::new(&auth.allowed_origins)?;
        if authenticator.is_open() {
            origins = origins.with_rebinding_protection();
        }
        Ok(Self { authenticator, origins })
    }
}

fn auth_settings(auth: &AuthConfig) -> AuthSettings {
    let tokens = auth.tokens.iter().map(|token| TokenSettings {
        name: token.name.clone(),
        digest: token.digest,
        scopes: ScopeList::from(token.scopes.clone()),
    });
    let certificates = auth.certificates.iter().map(|certificate| CertificateSettings {
        subject: certificate.subject.clone(),
        scopes: ScopeList::from(certificate.scopes.clone()),
    });
    let jwt = auth.jwt.has_key().then(|| JwtSettings {
        secret: auth.jwt.secret.clone(),
        public_key_file: auth.jwt.public_key_file.clone(),
        jwks_file: auth.jwt.jwks_file.clone(),
        issuer: auth.jwt.issuer.clone(),
        audience: auth.jwt.audience.clone(),
        require_exp: auth.jwt.require_exp,
    });
    AuthSettings { tokens: tokens.collect(), certificates: certificates.collect(), jwt }
}
