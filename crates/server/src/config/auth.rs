//! Authentication settings.

use std::path::PathBuf;

use toml::{Table, Value};

use super::known_keys::closest_match;
use super::{ConfigError, KeyPath, RawConfig};
use crate::auth::{AllowedOrigins, CertificateName, Secret, TokenDigest};

/// The keys of an element of `auth.tokens`.
const TOKEN_KEYS: [&str; 4] = ["token", "token_sha256", "name", "scopes"];
/// The keys of an element of `auth.certificates`.
const CERTIFICATE_KEYS: [&str; 2] = ["subject", "scopes"];
/// The most bytes of a token's name, which appears in log lines.
const MAX_TOKEN_NAME_BYTES: usize = 100;

#[derive(Clone, Debug)]
pub struct AuthConfig {
    /// Static tokens.
    pub tokens: Vec<TokenConfig>,
    /// Client certificates.
    pub certificates: Vec<CertificateConfig>,
    pub jwt: JwtConfig,
    /// Origins of web pages on other hosts that may connect, such as `https://app.example.com`.
    pub allowed_origins: Vec<String>,
}

/// A static token and its scopes.
#[derive(Clone, Debug)]
pub struct TokenConfig {
    /// Names its holder in the log, and is where its limits are counted. Several tokens may share it.
    pub name: String,
    /// Unique among the configured tokens.
    pub digest: TokenDigest,
    /// Such as `publish:heartbeat.*`.
    pub scopes: Vec<String>,
}

/// A name in client certificates, and the scopes of those who hold one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateConfig {
    /// `CN=…`, `DNS=…` or `URI=…`; unique among the configured certificates.
    pub subject: String,
    /// Such as `publish:heartbeat.*`.
    pub scopes: Vec<String>,
}

/// How JSON Web Tokens are verified.
#[derive(Clone, Debug)]
pub struct JwtConfig {
    /// The shared secret for HS256.
    pub secret: Option<Secret>,
    /// A public key for RS256, ES256 or EdDSA, a PEM file.
    pub public_key_file: Option<PathBuf>,
    /// A set of public keys, a JWKS file.
    pub jwks_file: Option<PathBuf>,
    /// The required `iss` claim.
    pub issuer: Option<String>,
    /// The required `aud` claim.
    pub audience: Option<String>,
    /// Rejects tokens without an expiry.
    pub require_exp: bool,
}

impl AuthConfig {
    /// Returns `true` if clients must authenticate.
    #[must_use]
    pub const fn is_required(&self) -> bool {
        !self.tokens.is_empty() || !self.certificates.is_empty() || self.jwt.has_key()
    }

    pub(super) fn read(raw: &RawConfig) -> Result<Self, ConfigError> {
        Ok(Self {
            tokens: read_tokens(raw)?,
            certificates: read_certificates(raw)?,
            jwt: JwtConfig::read(raw)?,
            allowed_origins: raw.list(
                &KeyPath::of("auth.allowed_origins"),
                r#"a list of origins without a path, such as "https://app.example.com", "null", or "*" for all"#,
                |origin| {
                    let is_origin = |text: &&str| AllowedOrigins::new(&[text]).is_ok();
                    origin.as_str().filter(is_origin).map(str::to_owned)
                },
            )?,
        })
    }
}

impl JwtConfig {
    /// Returns `true` if a key to verify signatures is configured.
    #[must_use]
    pub const fn has_key(&self) -> bool {
        self.secret.is_some() || self.public_key_file.is_some() || self.jwks_file.is_some()
    }

    /// Returns how many sources of keys are configured.
    #[must_use]
    pub fn key_sources(&self) -> usize {
        let sources =
            [self.secret.is_some(), self.public_key_file.is_some(), self.jwks_file.is_some()];
        sources.into_iter().filter(|is_set| *is_set).count()
    }

    fn read(raw: &RawConfig) -> Result<Self, ConfigError> {
        let section = KeyPath::of("auth.jwt");
        let text = |name| raw.optional_string(&section.join(name));
        let jwt = Self {
            secret: text("secret")?.map(Secret::from),
            public_key_file: text("public_key_file")?.map(PathBuf::from),
            jwks_file: text("jwks_file")?.map(PathBuf::from),
            issuer: text("issuer")?.map(str::to_owned),
            audience: text("audience")?.map(str::to_owned),
            require_exp: raw.bool(&section.join("require_exp"))?,
        };
        // An operator who sets these expects tokens to be verified.
        for (name, claim) in [("issuer", &jwt.issuer), ("audience", &jwt.audience)] {
            if claim.is_some() && !jwt.has_key() {
                return Err(raw.conflict(
                    &section.join(name),
                    "has no effect without a key: set auth.jwt.secret, auth.jwt.public_key_file or \
                     auth.jwt.jwks_file as well",
                ));
            }
        }
        Ok(jwt)
    }
}

fn read_tokens(raw: &RawConfig) -> Result<Vec<TokenConfig>, ConfigError> {
    let key = KeyPath::of("auth.tokens");
    let allowed = r#"a list of {name = "…", token_sha256 = "…", scopes = ["…"]}"#;
    let elements = raw.list(&key, allowed, |element| element.as_table().cloned())?;
    let mut tokens: Vec<TokenConfig> = Vec::new();
    for (element, number) in elements.iter().zip(1..) {
        let invalid =
            |reason: &str| raw.conflict(&key, format!("has an invalid element {number}: {reason}"));
        let token = read_token(element, number).map_err(|reason| invalid(&reason))?;
        if tokens.iter().any(|earlier| earlier.digest == token.digest) {
            return Err(invalid("it repeats an earlier token"));
        }
        tokens.push(token);
    }
    Ok(tokens)
}

fn read_token(element: &Table, number: usize) -> Result<TokenConfig, String> {
    if let Some(name) = element.keys().find(|name| !TOKEN_KEYS.contains(&name.as_str())) {
        // A key unlike any of ours may be a misplaced token, so the message does not repeat it.
        return Err(closest_match(name, TOKEN_KEYS.into_iter()).map_or_else(
            || "unknown key; the keys are token or token_sha256, name and scopes".to_owned(),
            |meant| format!("unknown key {name}; did you mean {meant}?"),
        ));
    }
    Ok(TokenConfig {
        name: read_token_name(element.get("name"), number)?,
        digest: read_digest(element.get("token"), element.get("token_sha256"))?,
        scopes: read_scopes(element)?,
    })
}

fn read_certificates(raw: &RawConfig) -> Result<Vec<CertificateConfig>, ConfigError> {
    let key = KeyPath::of("auth.certificates");
    let allowed = r#"a list of {subject = "CN=…", scopes = ["…"]}"#;
    let elements = raw.list(&key, allowed, |element| element.as_table().cloned())?;
    let mut certificates: Vec<CertificateConfig> = Vec::new();
    for (element, number) in elements.iter().zip(1..) {
        let invalid =
            |reason: &str| raw.conflict(&key, format!("has an invalid element {number}: {reason}"));
        let certificate = read_certificate(element).map_err(|reason| invalid(&reason))?;
        let name = CertificateName::parse(&certificate.subject);
        if certificates.iter().any(|earlier| CertificateName::parse(&earlier.subject) == name) {
            return Err(invalid("it repeats an earlier subject"));
        }
        certificates.push(certificate);
    }
    Ok(certificates)
}

fn read_certificate(element: &Table) -> Result<CertificateConfig, String> {
    if let Some(name) = element.keys().find(|name| !CERTIFICATE_KEYS.contains(&name.as_str())) {
        return Err(format!("unknown key {name}; the keys are subject and scopes"));
    }
    let subject = element.get("subject").and_then(Value::as_str);
    let subject = subject.filter(|text| CertificateName::parse(text).is_some());
    Ok(CertificateConfig {
        subject: subject.ok_or("subject must be CN=NAME, DNS=NAME or URI=NAME")?.to_owned(),
        scopes: read_scopes(element)?,
    })
}

fn read_scopes(element: &Table) -> Result<Vec<String>, &'static str> {
    let scopes = element.get("scopes").and_then(Value::as_array);
    let scopes = scopes.and_then(|s| s.iter().map(|s| s.as_str().map(str::to_owned)).collect());
    scopes.ok_or("scopes must be a list of strings")
}

fn read_token_name(name: Option<&Value>, number: usize) -> Result<String, String> {
    let Some(name) = name else { return Ok(format!("token-{number}")) };
    let fits = |text: &&str| {
        (1..=MAX_TOKEN_NAME_BYTES).contains(&text.len()) && !text.contains(char::is_control)
    };
    name.as_str().filter(fits).map(str::to_owned).ok_or_else(|| {
        format!(
            "name must be a string of 1 to {MAX_TOKEN_NAME_BYTES} bytes without control characters"
        )
    })
}

fn read_digest(token: Option<&Value>, sha256: Option<&Value>) -> Result<TokenDigest, &'static str> {
    match (token, sha256) {
        (Some(token), None) => {
            let token = token.as_str().filter(|text| !text.is_empty());
            token.map(TokenDigest::of).ok_or("token must be a non-empty string")
        }
        (None, Some(digest)) => digest.as_str().and_then(TokenDigest::from_hex).ok_or(
            "token_sha256 must be 64 hexadecimal digits, as printed by: printf %s TOKEN | sha256sum",
        ),
        (None, None) => Err("it needs token, or token_sha256, as printed by: printf %s TOKEN | sha256sum"),
        (Some(_), Some(_)) => Err("set token or token_sha256, not both"),
    }
}
