//! An issuer that signs tokens for tests.

use std::sync::LazyLock;

use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

pub(super) const SECRET: &str = "a shared secret for tests, long enough";

pub(super) enum Issuer {
    Hs256(Vec<u8>),
    Rs256(RsaKeyPair),
    Es256(EcdsaKeyPair),
    EdDsa(Ed25519KeyPair),
}

/// Shared by all tests, because generating an RSA key is slow.
pub(super) static RSA: LazyLock<Issuer> =
    LazyLock::new(|| Issuer::Rs256(RsaKeyPair::generate(KeySize::Rsa2048).unwrap()));

impl Issuer {
    pub(super) fn shared_secret() -> Self {
        Self::Hs256(SECRET.as_bytes().to_vec())
    }

    pub(super) fn ed25519() -> Self {
        Self::EdDsa(Ed25519KeyPair::generate().unwrap())
    }

    pub(super) fn p256() -> Self {
        Self::Es256(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap())
    }

    /// A key on another curve, which only claims to be for ES256.
    pub(super) fn p384() -> Self {
        Self::Es256(EcdsaKeyPair::generate(&ECDSA_P384_SHA384_FIXED_SIGNING).unwrap())
    }

    pub(super) fn alg(&self) -> &'static str {
        match self {
            Self::Hs256(_) => "HS256",
            Self::Rs256(_) => "RS256",
            Self::Es256(_) => "ES256",
            Self::EdDsa(_) => "EdDSA",
        }
    }

    pub(super) fn sign(&self, header: &Value, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", part(header), part(claims));
        let signature = match self {
            Self::Hs256(secret) => {
                let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, secret);
                aws_lc_rs::hmac::sign(&key, message.as_bytes()).as_ref().to_vec()
            }
            Self::Rs256(key) => {
                let mut signature = vec![0; key.public_modulus_len()];
                let random = SystemRandom::new();
                key.sign(&RSA_PKCS1_SHA256, &random, message.as_bytes(), &mut signature).unwrap();
                signature
            }
            Self::Es256(key) => {
                key.sign(&SystemRandom::new(), message.as_bytes()).unwrap().as_ref().to_vec()
            }
            Self::EdDsa(key) => key.sign(message.as_bytes()).as_ref().to_vec(),
        };
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    pub(super) fn token(&self, claims: &Value) -> String {
        self.sign(&json!({"alg": self.alg(), "typ": "JWT"}), claims)
    }

    pub(super) fn token_with_kid(&self, kid: &str) -> String {
        self.sign(&json!({"alg": self.alg(), "kid": kid}), &json!({"sub": kid}))
    }

    pub(super) fn public_pem(&self) -> String {
        let der: PublicKeyX509Der<'_> = match self {
            Self::Hs256(_) => panic!("a shared secret has no public key"),
            Self::Rs256(key) => key.public_key().as_der().unwrap(),
            Self::Es256(key) => key.public_key().as_der().unwrap(),
            Self::EdDsa(key) => key.public_key().as_der().unwrap(),
        };
        pem("PUBLIC KEY", der.as_ref())
    }

    pub(super) fn jwk(&self) -> Value {
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        match self {
            Self::Hs256(secret) => json!({"kty": "oct", "k": text(secret)}),
            Self::Rs256(key) => {
                let key = key.public_key();
                let n = key.modulus().big_endian_without_leading_zero();
                let e = key.exponent().big_endian_without_leading_zero();
                json!({"kty": "RSA", "n": text(n), "e": text(e)})
            }
            Self::Es256(key) => {
                // An uncompressed point: 4, then both coordinates.
                let (x, y) = key.public_key().as_ref()[1..].split_at(32);
                json!({"kty": "EC", "crv": "P-256", "x": text(x), "y": text(y)})
            }
            Self::EdDsa(key) => {
                json!({"kty": "OKP", "crv": "Ed25519", "x": text(key.public_key().as_ref())})
            }
        }
    }
}

pub(super) fn pem(label: &str, der: &[u8]) -> String {
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(der))
}
