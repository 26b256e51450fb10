use prombus_proto::{ErrorCode, Topic};

use super::*;

const NOW: Timestamp = Timestamp(1_000);

fn token(name: &str, token: &str, scopes: &str) -> TokenSettings {
    TokenSettings { name: name.to_owned(), digest: TokenDigest::of(token), scopes: scopes.into() }
}

fn of_tokens(tokens: Vec<TokenSettings>) -> AuthSettings {
    AuthSettings { tokens, ..AuthSettings::default() }
}

fn signed(secret: &str) -> JwtSettings {
    JwtSettings {
        secret: Some(secret.into()),
        public_key_file: None,
        jwks_file: None,
        issuer: None,
        audience: None,
        require_exp: true,
    }
}

fn setup_error(settings: AuthSettings) -> String {
    Authenticator::new(settings).unwrap_err().to_string()
}

#[test]
fn an_open_server_accepts_any_token() {
    let authenticator = Authenticator::new(AuthSettings::default()).unwrap();
    assert!(authenticator.is_open());
    for token in ["", "anything", "a.b.c"] {
        assert_eq!(authenticator.check(token, NOW), Ok(Grant::unrestricted()));
    }
    assert_eq!(Grant::unrestricted().name(), None);
}

#[test]
fn configured_tokens_grant_their_scopes_without_expiry() {
    let authenticator = Authenticator::new(of_tokens(vec![
        token("thermometer", "sensor", "publish:heartbeat.*"),
        token("dashboard", "reader", "!read:secret.** read:**"),
        token("nobody", "nobody", ""),
    ]))
    .unwrap();
    assert!(!authenticator.is_open());
    let (heartbeat, secret) = (Topic::new("heartbeat.a").unwrap(), Topic::new("secret.a").unwrap());
    for (token, name, action, allowed) in [
        ("sensor", "thermometer", Action::Publish(&heartbeat), true),
        ("sensor", "thermometer", Action::Publish(&secret), false),
        ("sensor", "thermometer", Action::Read(&heartbeat), false),
        ("reader", "dashboard", Action::Read(&heartbeat), true),
        ("reader", "dashboard", Action::Read(&secret), false),
        ("reader", "dashboard", Action::Admin, false),
        ("nobody", "nobody", Action::Publish(&heartbeat), false),
    ] {
        let grant = authenticator.check(token, NOW).unwrap();
        let expected = if allowed { Ok(()) } else { Err(Denied::Forbidden) };
        assert_eq!(grant.authorize(action, || Timestamp(u64::MAX)), expected, "{token} {action:?}");
        assert_eq!((grant.name(), grant.identity.kind()), (Some(name), "token"));
    }
    for token in ["", "sensor ", "Sensor", "thermometer", "a.b.c"] {
        assert_eq!(authenticator.check(token, NOW), Err(BadToken::Unknown), "{token}");
    }
}

#[test]
fn accepts_configured_and_signed_tokens_together() {
    let secret = "x".repeat(32);
    let tokens = vec![token("t", "x.y.z", "admin")];
    let both = AuthSettings { tokens, jwt: Some(signed(&secret)), ..AuthSettings::default() };
    let authenticator = Authenticator::new(both).unwrap();
    // A configured token may look like a signed one.
    assert!(authenticator.check("x.y.z", NOW).unwrap().authorize(Action::Admin, || NOW).is_ok());
    assert_eq!(authenticator.check("x.y.w", NOW), Err(BadToken::Malformed));
    assert_eq!(authenticator.check("other", NOW), Err(BadToken::Unknown));
    let signed_only = AuthSettings { jwt: Some(signed(&secret)), ..AuthSettings::default() };
    let signed_only = Authenticator::new(signed_only).unwrap();
    assert!(!signed_only.is_open());
    assert_eq!(signed_only.check("", NOW), Err(BadToken::Unknown));
}

#[test]
fn names_unusable_settings() {
    for (second, expected) in [
        (token("b", "hidden", ""), "auth.tokens[1] repeats a token"),
        (token("b", "b", "write:a"), "auth.tokens[1].scopes: a scope is `read:TOPIC`"),
        (token("b", "b", "publish:A"), "auth.tokens[1].scopes: the scope \"publish:A\" has an"),
    ] {
        let error = setup_error(of_tokens(vec![token("a", "hidden", ""), second]));
        assert!(error.starts_with(expected), "{error}");
        assert!(!error.contains("hidden"), "{error}");
    }
    let no_key = JwtSettings { secret: None, issuer: Some("i".to_owned()), ..signed("") };
    let error = setup_error(AuthSettings { jwt: Some(no_key), ..AuthSettings::default() });
    assert!(error.starts_with("auth.jwt needs a key"), "{error}");
}

#[test]
fn a_secret_has_at_least_32_bytes() {
    for (bytes, accepted) in [(0, false), (1, false), (31, false), (32, true), (100, true)] {
        let secret = "x".repeat(bytes);
        let built = Authenticator::new(AuthSettings {
            jwt: Some(signed(&secret)),
            ..AuthSettings::default()
        });
        match built {
            Ok(_) => assert!(accepted, "{bytes}"),
            Err(error) => {
                let error = error.to_string();
                assert!(!accepted && error.starts_with("auth.jwt.secret is shorter"), "{error}");
            }
        }
    }
}

#[test]
fn debug_output_hides_tokens() {
    let settings = AuthSettings {
        certificates: vec![],
        tokens: vec![token("name", "hidden-token", "admin")],
        jwt: Some(signed("hidden-secret-of-32-bytes-or-more")),
    };
    let authenticator = Authenticator::new(settings.clone()).unwrap();
    let refused = authenticator.check("hidden.try.x", NOW).unwrap_err();
    let shown = format!("{settings:?} {authenticator:?} {refused:?} {refused}");
    assert!(!shown.contains("hidden"), "{shown}");
    assert!(shown.contains("StaticTokens(1)") && shown.contains("<redacted>"), "{shown}");
    assert_eq!(refused.code(), ErrorCode::BadToken);
}
