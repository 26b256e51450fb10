//! A key, and the one algorithm it is for.

use std::fmt;

use aws_lc_rs::signature::{ED25519, ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256};
use jsonwebtoken::{Algorithm, DecodingKey};
use thiserror::Error;

/// The algorithm belongs to the key. Were it the token's to say, a public key could be taken for a
/// shared secret, and everybody could sign.
pub(super) struct Key {
    pub(super) kid: Option<String>,
    pub(super) algorithm: Algorithm,
    pub(super) decoding: DecodingKey,
}

/// Why a file gives no key.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadKey {
    /// Not a public key that is known here.
    #[error(
        "holds no public key in PEM that can be used: RSA of 2048 to 8192 bits, or Ed25519, \
         beginning with -----BEGIN PUBLIC KEY-----"
    )]
    NoPublicKey,
    /// Not a key set.
    #[error("is no JSON Web Key Set: {0}")]
    NoKeySet(String),
    /// A key of the set that is meant for signatures and cannot be one.
    #[error("{key}: {reason}")]
    BadMember {
        /// Which key.
        key: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Only keys for other purposes.
    #[error("holds no key for RS256, EdDSA or HS256 signatures")]
    NothingUsable,
}

impl Key {
    /// A secret for HS256.
    pub(super) fn shared_secret(secret: &[u8]) -> Self {
        Self { kid: None, algorithm: Algorithm::HS256, decoding: DecodingKey::from_secret(secret) }
    }

    /// A public key: RSA is for RS256, Ed25519 for EdDSA.
    pub(super) fn from_pem(pem: &[u8]) -> Result<Self, BadKey> {
        let rsa = DecodingKey::from_rsa_pem(pem).map(|key| (Algorithm::RS256, key));
        let (algorithm, decoding) = rsa
            .or_else(|_| DecodingKey::from_ed_pem(pem).map(|key| (Algorithm::EdDSA, key)))
            .map_err(|_| BadKey::NoPublicKey)?;
        // Looked at now, or a private, weak or broken key would show only as a wrong signature.
        let bytes = decoding.try_get_as_bytes().map_err(|_| BadKey::NoPublicKey)?;
        match algorithm {
            Algorithm::RS256 => ParsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, bytes),
            _ => ParsedPublicKey::new(&ED25519, bytes),
        }
        .map_err(|_| BadKey::NoPublicKey)?;
        Ok(Self { kid: None, algorithm, decoding })
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kid, algorithm, .. } = self;
        f.debug_struct("Key")
            .field("kid", kid)
            .field("algorithm", algorithm)
            .finish_non_exhaustive()
    }
}
