//! Who may come in.

use std::path::PathBuf;

use toml::{Table, Value};

use super::known_keys::most_alike;
use super::{ConfigError, KeyPath, Settings};
use crate::auth::{AllowedOrigins, Secret};

/// What an element of `auth.tokens` has.
const TOKEN_KEYS: [&str; 2] = ["token", "scopes"];

/// Who may come in, and from which pages.
#[derive(Clone, Debug)]
pub struct Auth {
    /// Tokens that are written down here.
    pub tokens: Vec<Token>,
    /// Tokens that somebody else signs.
    pub jwt: Jwt,
    /// Origins of web pages that may connect besides our own host's, such as `https://app.example.com`.
    pub allowed_origins: Vec<String>,
}

/// A token and what it is good for.
#[derive(Clone, Debug)]
pub struct Token {
    /// What a client shows. Not empty, and no other token's.
    pub token: Secret,
    /// What that allows, such as `publish:heartbeat.*`.
    pub scopes: Vec<String>,
}

/// How signed tokens are checked.
#[derive(Clone, Debug)]
pub struct Jwt {
    /// The shared secret for HS256.
    pub secret: Option<Secret>,
    /// A public key for RS256 or EdDSA, a PEM file.
    pub public_key_file: Option<PathBuf>,
    /// Several public keys, a JWKS file.
    pub jwks_file: Option<PathBuf>,
    /// The `iss` a token has to carry.
    pub issuer: Option<String>,
    /// The `aud` a token has to carry.
    pub audience: Option<String>,
}

impl Auth {
    /// Whether clients have to authenticate.
    #[must_use]
    pub const fn is_required(&self) -> bool {
        !self.tokens.is_empty() || self.jwt.has_key()
    }

    pub(super) fn read(settings: &Settings) -> Result<Self, ConfigError> {
        Ok(Self {
            tokens: read_tokens(settings)?,
            jwt: Jwt::read(settings)?,
            allowed_origins: settings.list(
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

impl Jwt {
    /// Whether there is a key to check signatures with.
    #[must_use]
    pub const fn has_key(&self) -> bool {
        self.secret.is_some() || self.public_key_file.is_some() || self.jwks_file.is_some()
    }

    fn read(settings: &Settings) -> Result<Self, ConfigError> {
        let section = KeyPath::of("auth.jwt");
        let text = |name| settings.text_or_none(&section.join(name));
        let jwt = Self {
            secret: text("secret")?.map(Secret::from),
            public_key_file: text("public_key_file")?.map(PathBuf::from),
            jwks_file: text("jwks_file")?.map(PathBuf::from),
            issuer: text("issuer")?.map(str::to_owned),
            audience: text("audience")?.map(str::to_owned),
        };
        // Whoever sets these believes that tokens are checked.
        for (name, is_set) in [("issuer", &jwt.issuer), ("audience", &jwt.audience)] {
            if is_set.is_some() && !jwt.has_key() {
                return Err(settings.conflict(
                    &section.join(name),
                    "checks nothing without a key: set auth.jwt.secret, auth.jwt.public_key_file or \
                     auth.jwt.jwks_file, too",
                ));
            }
        }
        Ok(jwt)
    }
}

fn read_tokens(settings: &Settings) -> Result<Vec<Token>, ConfigError> {
    let key = KeyPath::of("auth.tokens");
    let allowed = r#"a list of {token = "…", scopes = ["…"]}"#;
    let elements = settings.list(&key, allowed, |element| element.as_table().cloned())?;
    let mut tokens: Vec<Token> = Vec::new();
    for (element, number) in elements.iter().zip(1..) {
        let refused =
            |reason: &str| settings.conflict(&key, format!("has element {number} {reason}"));
        let token = token(element).map_err(|reason| refused(&reason))?;
        if tokens.iter().any(|earlier| earlier.token == token.token) {
            return Err(refused("with the token of an earlier one"));
        }
        tokens.push(token);
    }
    Ok(tokens)
}

fn token(element: &Table) -> Result<Token, String> {
    if let Some(name) = element.keys().find(|name| !TOKEN_KEYS.contains(&name.as_str())) {
        // A name that is like none of ours may be a token in the wrong place: it is not repeated.
        return Err(most_alike(name, TOKEN_KEYS.into_iter()).map_or_else(
            || "with an unknown key; it has only token and scopes".to_owned(),
            |meant| format!("with the unknown key {name}; did you mean {meant}?"),
        ));
    }
    let token = element.get("token").and_then(Value::as_str).filter(|text| !text.is_empty());
    let scopes = element.get("scopes").and_then(Value::as_array);
    let scopes = scopes.and_then(|s| s.iter().map(|s| s.as_str().map(str::to_owned)).collect());
    Ok(Token {
        token: Secret::from(token.ok_or("whose token is not a text, or empty")?),
        scopes: scopes.ok_or("whose scopes are not a list of texts")?,
    })
}
