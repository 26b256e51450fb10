//! Keys of a JSON Web Key Set.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;

use super::key::{BadKey, VerifyingKey, is_valid};
use crate::auth::settings::MIN_SECRET_BYTES;

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Jwk>,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    crv: Option<String>,
    /// RSA modulus.
    n: Option<String>,
    /// RSA exponent.
    e: Option<String>,
    /// Ed25519 public key, or a coordinate of a P-256 public key.
    x: Option<String>,
    /// The other coordinate.
    y: Option<String>,
    /// Shared secret.
    k: Option<String>,
}

/// Returns the keys that can verify tokens. Keys for encryption or for unsupported algorithms, which
/// issuers publish in the same set, are ignored.
pub(super) fn parse_keys(json: &[u8]) -> Result<Vec<VerifyingKey>, BadKey> {
    let set: KeySet =
        serde_json::from_slice(json).map_err(|error| BadKey::NotAKeySet(describe(&error)))?;
    let mut keys = Vec::new();
    for (index, jwk) in set.keys.into_iter().enumerate() {
        if let Some(algorithm) = jwk.algorithm() {
            let decoding = jwk.decoding_key(algorithm).map_err(|reason| BadKey::InvalidKey {
                key: match &jwk.kid {
                    Some(kid) => format!("the key with kid {kid:?}"),
                    None => format!("keys[{index}]"),
                },
                reason,
            })?;
            keys.push(VerifyingKey { kid: jwk.kid, algorithm, decoding });
        }
    }
    if keys.is_empty() { Err(BadKey::NoUsableKey) } else { Ok(keys) }
}

/// Describes a JSON error without quoting the file, which may contain a secret.
fn describe(error: &serde_json::Error) -> String {
    let kind = match error.classify() {
        serde_json::error::Category::Data => "not {\"keys\": [{\"kty\": …}, …]}",
        _ => "not JSON",
    };
    format!("{kind}, at line {} column {}", error.line(), error.column())
}

impl Jwk {
    /// The algorithm to verify signatures with, if it is supported.
    fn algorithm(&self) -> Option<Algorithm> {
        if self.purpose.as_deref().is_some_and(|purpose| purpose != "sig") {
            return None;
        }
        match (self.kty.as_str(), self.alg.as_deref(), self.crv.as_deref()) {
            ("RSA", None | Some("RS256"), _) => Some(Algorithm::RS256),
            ("EC", None | Some("ES256"), Some("P-256")) => Some(Algorithm::ES256),
            ("OKP", None | Some("EdDSA" | "Ed25519"), Some("Ed25519")) => Some(Algorithm::EdDSA),
            ("oct", None | Some("HS256"), _) => Some(Algorithm::HS256),
            _ => None,
        }
    }

    fn decoding_key(&self, algorithm: Algorithm) -> Result<DecodingKey, &'static str> {
        match algorithm {
            Algorithm::RS256 => {
                let (n, e) = (bytes(&self.n)?, bytes(&self.e)?);
                if !(2048..=8192).contains(&bits(&n)) || bits(&e) < 2 {
                    return Err("an RSA key needs n of 2048 to 8192 bits and an exponent e");
                }
                Ok(DecodingKey::from_rsa_raw_components(&n, &e))
            }
            Algorithm::ES256 => {
                // An uncompressed point (SEC 1).
                let point = [vec![4], bytes(&self.x)?, bytes(&self.y)?].concat();
                if !is_valid(algorithm, &point) {
                    return Err("a P-256 key needs x and y of 32 bytes, a point of the curve");
                }
                Ok(DecodingKey::from_ec_der(&point))
            }
            Algorithm::EdDSA => match bytes(&self.x)? {
                key if key.len() == 32 => Ok(DecodingKey::from_ed_der(&key)),
                _ => Err("an Ed25519 key needs x of 32 bytes"),
            },
            _ => match bytes(&self.k)? {
                secret if secret.len() < MIN_SECRET_BYTES => {
                    Err("the secret k is shorter than 32 bytes")
                }
                secret => Ok(DecodingKey::from_secret(&secret)),
            },
        }
    }
}

fn bytes(field: &Option<String>) -> Result<Vec<u8>, &'static str> {
    let text = field.as_deref().ok_or(
        "a field is missing: RSA needs n and e, EC needs x and y, OKP needs x, oct needs k",
    )?;
    URL_SAFE_NO_PAD.decode(text).map_err(|_| "a field is not base64url without padding")
}

fn bits(big_endian: &[u8]) -> usize {
    let zeros = big_endian.iter().take_while(|byte| **byte == 0).count();
    match big_endian[zeros..].first() {
        Some(first) => (big_endian.len() - zeros) * 8 - first.leading_zeros() as usize,
        None => 0,
    }
}
