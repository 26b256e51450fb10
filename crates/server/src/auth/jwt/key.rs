//! A key and the one algorithm it is used with.

use std::fmt;

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256,
};
use jsonwebtoken::{Algorithm, DecodingKey};
use thiserror::Error;

/// The key determines the algorithm. If the token did, an attacker could sign with the public key as
/// an HS256 secret.
pub(super) struct VerifyingKey {
    pub(super) kid: Option<String>,
    pub(super) algorithm: Algorithm,
    pub(super) decoding: DecodingKey,
}

/// Why a key file is unusable.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadKey {
    #[error(
        "contains no usable public key in PEM: expected RSA of 2048 to 8192 bits, P-256 or \
         Ed25519, starting with -----BEGIN PUBLIC KEY-----"
    )]
    NoPublicKey,
    #[error("is not a JSON Web Key Set: {0}")]
    NotAKeySet(String),
    /// A signature key of the set that is malformed.
    #[error("{key}: {reason}")]
    InvalidKey {
        /// The `kid` of the key, or its index in the set.
        key: String,
        reason: &'static str,
    },
    #[error("contains no key for RS256, ES256, EdDSA or HS256 signatures")]
    NoUsableKey,
}

impl VerifyingKey {
    /// An HS256 secret.
    pub(super) fn shared_secret(secret: &[u8]) -> Self {
        Self { kid: None, algorithm: Algorithm::HS256, decoding: DecodingKey::from_secret(secret) }
    }

    /// A public key: RSA for RS256, P-256 for ES256, Ed25519 for EdDSA.
    pub(super) fn from_pem(pem: &[u8]) -> Result<Self, BadKey> {
        let rsa = DecodingKey::from_rsa_pem(pem).map(|key| (Algorithm::RS256, key));
        let (algorithm, decoding) = rsa
            .or_else(|_| DecodingKey::from_ec_pem(pem).map(|key| (Algorithm::ES256, key)))
            .or_else(|_| DecodingKey::from_ed_pem(pem).map(|key| (Algorithm::EdDSA, key)))
            .map_err(|_| BadKey::NoPublicKey)?;
        let bytes = decoding.try_get_as_bytes().map_err(|_| BadKey::NoPublicKey)?;
        if is_valid(algorithm, bytes) {
            Ok(Self { kid: None, algorithm, decoding })
        } else {
            Err(BadKey::NoPublicKey)
        }
    }
}

/// Parses a public key once: otherwise a private, weak or broken key, or one on another curve, would
/// only surface as an invalid signature.
pub(super) fn is_valid(algorithm: Algorithm, key: &[u8]) -> bool {
    match algorithm {
        Algorithm::RS256 => ParsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key),
        Algorithm::ES256 => ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key),
        _ => ParsedPublicKey::new(&ED25519, key),
    }
    .is_ok()
}

impl fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kid, algorithm, .. } = self;
        f.debug_struct("VerifyingKey")
            .field("kid", kid)
            .field("algorithm", algorithm)
            .finish_non_exhaustive()
    }
}
