//! Signed tokens (JWT).
//!
//! - `key`: a key and its algorithm
//! - `jwks`: keys of a JSON Web Key Set
//! - `claims`: the claims of a token

mod claims;
mod jwks;
mod key;

use std::path::Path;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Validation, decode, decode_header};
use prombus_proto::Timestamp;

use self::claims::Claims;
use self::key::VerifyingKey;
use super::bad_token::BadToken;
use super::grant::Grant;
use super::settings::{AuthSetupError, JwtSettings, MIN_SECRET_BYTES};

pub use self::key::BadKey;

/// Verifies signed tokens with the configured keys.
#[derive(Debug)]
pub struct JwtVerifier {
    keys: Vec<VerifyingKey>,
    issuer: Option<String>,
    audience: Option<String>,
    require_exp: bool,
}

impl JwtVerifier {
    /// Reads the keys. Several sources may be configured together, so that an issuer can migrate
    /// from one to another.
    pub fn new(settings: JwtSettings) -> Result<Self, AuthSetupError> {
        let mut keys = Vec::new();
        if let Some(secret) = &settings.secret {
            if secret.reveal().len() < MIN_SECRET_BYTES {
                return Err(AuthSetupError::ShortSecret);
            }
            keys.push(VerifyingKey::shared_secret(secret.reveal().as_bytes()));
        }
        if let Some(file) = &settings.public_key_file {
            keys.push(read_keys("public_key_file", file, VerifyingKey::from_pem)?);
        }
        if let Some(file) = &settings.jwks_file {
            keys.append(&mut read_keys("jwks_file", file, jwks::parse_keys)?);
        }
        if keys.is_empty() {
            return Err(AuthSetupError::NoKey);
        }
        let JwtSettings { issuer, audience, require_exp, .. } = settings;
        Ok(Self { keys, issuer, audience, require_exp })
    }

    /// Returns what the token allows if one of the keys signed it and it is valid now.
    pub fn check(&self, token: &str, now: Timestamp) -> Result<Grant, BadToken> {
        if token.split('.').count() != 3 {
            return Err(BadToken::Unknown);
        }
        let claims = self.verify_signature(token)?;
        claims.check_issuer(self.issuer.as_deref())?;
        claims.check_audience(self.audience.as_deref())?;
        if self.require_exp {
            claims.check_has_expiry()?;
        }
        claims.check_time(now)?;
        claims.into_grant()
    }

    fn verify_signature(&self, token: &str) -> Result<Claims, BadToken> {
        // The header is not trusted: it only selects a key, and the key determines the algorithm.
        let header = decode_header(token).map_err(|_| BadToken::Malformed)?;
        if header.crit.is_some() {
            // Lists extensions that a verifier must support; we support none.
            return Err(BadToken::Malformed);
        }
        let mut rejected = BadToken::UnknownKey;
        for key in self.keys_for(header.kid.as_deref()).filter(|key| key.algorithm == header.alg) {
            match decode(token, &key.decoding, &signature_only(key)) {
                Ok(token) => return Ok(token.claims),
                Err(error) => rejected = rejection(&error),
            }
        }
        Err(rejected)
    }

    /// Returns the keys with that `kid`, or if there are none, the keys without a `kid`. For a token
    /// without a `kid`, returns all keys.
    fn keys_for<'a>(&'a self, kid: Option<&'a str>) -> impl Iterator<Item = &'a VerifyingKey> {
        let is_known = kid.is_some() && self.keys.iter().any(|key| key.kid.as_deref() == kid);
        self.keys.iter().filter(move |key| match kid {
            None => true,
            Some(_) if is_known => key.kid.as_deref() == kid,
            Some(_) => key.kid.is_none(),
        })
    }
}

fn read_keys<T>(
    setting: &'static str,
    file: &Path,
    parse: impl FnOnce(&[u8]) -> Result<T, BadKey>,
) -> Result<T, AuthSetupError> {
    let bytes = std::fs::read(file).map_err(|reason| AuthSetupError::UnreadableFile {
        setting,
        file: file.to_owned(),
        reason,
    })?;
    parse(&bytes).map_err(|reason| AuthSetupError::BadKeyFile {
        setting,
        file: file.to_owned(),
        reason,
    })
}

/// Leaves the claims to [`Claims`], which is given the time instead of reading the clock.
fn signature_only(key: &VerifyingKey) -> Validation {
    let mut validation = Validation::new(key.algorithm);
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    validation.validate_nbf = false;
    validation.validate_aud = false;
    validation
}

fn rejection(error: &jsonwebtoken::errors::Error) -> BadToken {
    match error.kind() {
        ErrorKind::InvalidSignature => BadToken::InvalidSignature,
        _ => BadToken::Malformed,
    }
}

#[cfg(test)]
mod test_issuer;
#[cfg(test)]
mod tests;
