use prombus_proto::{ErrorCode, Topic};

use super::*;

const NOW: Timestamp = Timestamp(1_000);

fn settings(json: &str) -> AuthSettings {
    serde_json::from_str(json).unwrap()
}

fn setup_error(json: &str) -> String {
    Authenticator::new(settings(json)).unwrap_err().to_string()
}

#[test]
fn an_open_server_accepts_any_token() {
    for open in ["{}", r#"{"tokens": []}"#, r#"{"tokens": [], "jwt": null}"#] {
        let authenticator = Authenticator::new(settings(open)).unwrap();
        assert!(authenticator.is_open());
        for token in ["", "anything", "a.b.c"] {
            assert_eq!(authenticator.check(token, NOW), Ok(Grant::unrestricted()));
        }
    }
}

#[test]
fn configured_tokens_grant_their_scopes_without_expiry() {
    let authenticator = Authenticator::new(settings(
        r#"{"tokens": [
            {"token": "sensor", "scopes": ["publish:heartbeat.*"]},
            {"token": "reader", "scopes": "!subscribe:secret.** subscribe:**"},
            {"token": "nobody", "scopes": []}
        ]}"#,
    ))
    .unwrap();
    assert!(!authenticator.is_open());
    let (heartbeat, secret) = (Topic::new("heartbeat.a").unwrap(), Topic::new("secret.a").unwrap());
    for (token, action, allowed) in [
        ("sensor", Action::Publish(&heartbeat), true),
        ("sensor", Action::Publish(&secret), false),
        ("sensor", Action::Subscribe(&heartbeat), false),
        ("reader", Action::Subscribe(&heartbeat), true),
        ("reader", Action::Subscribe(&secret), false),
        ("reader", Action::Admin, false),
        ("nobody", Action::Publish(&heartbeat), false),
    ] {
        let grant = authenticator.check(token, NOW).unwrap();
        let expected = if allowed { Ok(()) } else { Err(Denied::Forbidden) };
        assert_eq!(grant.authorize(action, || Timestamp(u64::MAX)), expected, "{token} {action:?}");
    }
    for token in ["", "sensor ", "Sensor", "a.b.c"] {
        assert_eq!(authenticator.check(token, NOW), Err(BadToken::Unknown), "{token}");
    }
}

#[test]
fn accepts_configured_and_signed_tokens_together() {
    let both = r#"{"tokens": [{"token": "x.y.z", "scopes": ["admin"]}], "jwt": {"secret": "s"}}"#;
    let authenticator = Authenticator::new(settings(both)).unwrap();
    // A configured token may look like a signed one.
    assert!(authenticator.check("x.y.z", NOW).unwrap().authorize(Action::Admin, || NOW).is_ok());
    assert_eq!(authenticator.check("x.y.w", NOW), Err(BadToken::Malformed));
    assert_eq!(authenticator.check("other", NOW), Err(BadToken::Unknown));
    let signed_only = Authenticator::new(settings(r#"{"jwt": {"secret": "s"}}"#)).unwrap();
    assert!(!signed_only.is_open());
    assert_eq!(signed_only.check("", NOW), Err(BadToken::Unknown));
}

#[test]
fn names_unusable_settings() {
    let token = |token: &str, scopes: &str| format!(r#"{{"token":"{token}","scopes":{scopes}}}"#);
    for (second, expected) in [
        (token("", "[]"), "auth.tokens[1].token is empty"),
        (token("hidden", "[]"), "auth.tokens[1].token is listed twice"),
        (token("b", r#"["read:a"]"#), "auth.tokens[1].scopes: a scope is `publish:PATTERN`"),
        (token("b", r#"["publish:A"]"#), "auth.tokens[1].scopes: the scope \"publish:A\" has an"),
    ] {
        let first = token("hidden", "[]");
        let error = setup_error(&format!(r#"{{"tokens":[{first},{second}]}}"#));
        assert!(error.starts_with(expected), "{error}");
        assert!(!error.contains("hidden"), "{error}");
    }
    assert!(setup_error(r#"{"jwt": {"issuer": "i"}}"#).starts_with("auth.jwt needs a key"));
}

#[test]
fn rejects_unknown_settings() {
    for (json, name) in [
        (r#"{"token": []}"#, "`token`"),
        (r#"{"jwt": {"key": "x"}}"#, "`key`"),
        (r#"{"tokens": [{"token": "x", "scopes": [], "name": "n"}]}"#, "`name`"),
        (r#"{"tokens": [{"token": "x"}]}"#, "`scopes`"),
    ] {
        let error = serde_json::from_str::<AuthSettings>(json).unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn debug_output_hides_tokens() {
    let settings = settings(
        r#"{"tokens": [{"token": "hidden-token", "scopes": ["admin"]}],
            "jwt": {"secret": "hidden-secret"}}"#,
    );
    let authenticator = Authenticator::new(settings.clone()).unwrap();
    let refused = authenticator.check("hidden.try.x", NOW).unwrap_err();
    let shown = format!("{settings:?} {authenticator:?} {refused:?} {refused}");
    assert!(!shown.contains("hidden"), "{shown}");
    assert!(shown.contains("StaticTokens(1)") && shown.contains("<redacted>"), "{shown}");
    assert_eq!(refused.code(), ErrorCode::BadToken);
}
