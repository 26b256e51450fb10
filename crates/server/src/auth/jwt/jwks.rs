//! Keys of a JSON Web Key Set.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;

use super::key::{BadKey, Key};

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Member>,
}

#[derive(Deserialize)]
struct Member {
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
    /// Ed25519 public key.
    x: Option<String>,
    /// Shared secret.
    k: Option<String>,
}

/// The keys of the set that check signatures of tokens. Issuers keep others in it, too: for
/// encryption, or of algorithms that are not accepted here. Those are passed over.
pub(super) fn usable_keys(json: &[u8]) -> Result<Vec<Key>, BadKey> {
    let set: KeySet =
        serde_json::from_slice(json).map_err(|error| BadKey::NoKeySet(why(&error)))?;
    let mut keys = Vec::new();
    for (place, member) in set.keys.into_iter().enumerate() {
        if let Some(algorithm) = member.algorithm() {
            let decoding = member.decoding_key(algorithm).map_err(|reason| BadKey::BadMember {
                key: match &member.kid {
                    Some(kid) => format!("the key with kid {kid:?}"),
                    None => format!("keys[{place}]"),
                },
                reason,
            })?;
            keys.push(Key { kid: member.kid, algorithm, decoding });
        }
    }
    if keys.is_empty() { Err(BadKey::NothingUsable) } else { Ok(keys) }
}

/// Where and of what kind, without what stands there: it may be a secret.
fn why(error: &serde_json::Error) -> String {
    let kind = match error.classify() {
        serde_json::error::Category::Data => "not {\"keys\": [{\"kty\": …}, …]}",
        _ => "not JSON",
    };
    format!("{kind}, at line {} column {}", error.line(), error.column())
}

impl Member {
    /// What it is for, if that is accepted here.
    fn algorithm(&self) -> Option<Algorithm> {
        if self.purpose.as_deref().is_some_and(|purpose| purpose != "sig") {
            return None;
        }
        match (self.kty.as_str(), self.alg.as_deref(), self.crv.as_deref()) {
            ("RSA", None | Some("RS256"), _) => Some(Algorithm::RS256),
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
                    return Err("an RSA key has n of 2048 to 8192 bits and an exponent e");
                }
                Ok(DecodingKey::from_rsa_raw_components(&n, &e))
            }
            Algorithm::EdDSA => match bytes(&self.x)? {
                key if key.len() == 32 => Ok(DecodingKey::from_ed_der(&key)),
                _ => Err("an Ed25519 key has x of 32 bytes"),
            },
            _ => match bytes(&self.k)? {
                secret if secret.is_empty() => Err("the secret k is empty"),
                secret => Ok(DecodingKey::from_secret(&secret)),
            },
        }
    }
}

fn bytes(field: &Option<String>) -> Result<Vec<u8>, &'static str> {
    let text = field.as_deref().ok_or("lacks a field: RSA has n and e, OKP has x, oct has k")?;
    URL_SAFE_NO_PAD.decode(text).map_err(|_| "a field is not base64url without padding")
}

fn bits(big_endian: &[u8]) -> usize {
    let zeros = big_endian.iter().take_while(|byte| **byte == 0).count();
    match big_endian[zeros..].first() {
        Some(first) => (big_endian.len() - zeros) * 8 - first.leading_zeros() as usize,
        None => 0,
    }
}
