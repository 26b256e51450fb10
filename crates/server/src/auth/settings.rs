//! The `auth` section of the configuration.

use std::path::PathBuf;

use thiserror::Error;

use super::rule::InvalidRule;
use super::scope::ScopeList;
use super::secret::Secret;
use super::token_digest::TokenDigest;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthSettings {
    pub tokens: Vec<TokenSettings>,
    pub certificates: Vec<CertificateSettings>,
    pub jwt: Option<JwtSettings>,
}

/// An entry of `auth.tokens`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenSettings {
    pub name: String,
    pub digest: TokenDigest,
    pub scopes: ScopeList,
}

/// An entry of `auth.certificates`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateSettings {
    /// A name in the certificate: `CN=…`, `DNS=…` or `URI=…`.
    pub subject: String,
    pub scopes: ScopeList,
}

/// The section `auth.jwt`. At least one of the three key sources must be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtSettings {
    /// Shared secret for HS256.
    pub secret: Option<Secret>,
    /// PEM file with an RSA (RS256), P-256 (ES256) or Ed25519 (EdDSA) public key.
    pub public_key_file: Option<PathBuf>,
    /// A JSON Web Key Set.
    pub jwks_file: Option<PathBuf>,
    /// Required value of the claim `iss`.
    pub issuer: Option<String>,
    /// The claim `aud` must be or contain this.
    pub audience: Option<String>,
    /// Rejects tokens without an expiry.
    pub require_exp: bool,
}

/// The shortest HS256 secret: one that is as long as the signature (RFC 7518, section 3.2).
pub const MIN_SECRET_BYTES: usize = 32;

#[derive(Debug, Error)]
pub enum AuthSetupError {
    #[error("auth.tokens[{0}] repeats a token; list a token once, with all its scopes")]
    RepeatedToken(usize),
    #[error("auth.tokens[{index}].scopes: {reason}")]
    BadScope { index: usize, reason: InvalidRule },
    #[error("auth.certificates[{0}].subject must be CN=…, DNS=… or URI=…")]
    BadSubject(usize),
    #[error("auth.certificates[{0}].subject is listed twice; list it once, with all its scopes")]
    RepeatedSubject(usize),
    #[error("auth.certificates[{index}].scopes: {reason}")]
    BadCertificateScope { index: usize, reason: InvalidRule },
    #[error("auth.jwt needs a key: set secret, public_key_file or jwks_file")]
    NoKey,
    #[error(
        "auth.jwt.secret is shorter than {MIN_SECRET_BYTES} bytes, so it could be guessed from a \
         token: generate one with `openssl rand -base64 32`"
    )]
    ShortSecret,
    #[error("auth.jwt.{setting}: cannot read {}: {reason}", file.display())]
    UnreadableFile { setting: &'static str, file: PathBuf, reason: std::io::Error },
    #[error("auth.jwt.{setting}: {}: {reason}", file.display())]
    BadKeyFile { setting: &'static str, file: PathBuf, reason: super::jwt::BadKey },
}
