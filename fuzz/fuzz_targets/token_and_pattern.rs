//! Arbitrary tokens, scopes and patterns: no input may panic, match wrongly or gain access.
//!
//! The input is split into lines: a pattern, a topic and scopes. The rest is used as a token, and also
//! as the claims of a correctly signed token, so that the code after the signature check is reached.

#![no_main]

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey};
use libfuzzer_sys::fuzz_target;
use prombus_proto::{Group, Timestamp, Topic};
use prombus_server::auth::{
    Action, AllowedOrigins, AuthSettings, Authenticator, JwtSettings, NamePattern, Scopes,
    TokenDigest, TokenSettings,
};

const SECRET: &str = "the secret of the fuzz target, long enough";
const NOW: Timestamp = Timestamp(1_000_000);

static AUTHENTICATOR: LazyLock<Authenticator> = LazyLock::new(|| {
    Authenticator::new(AuthSettings {
        certificates: Vec::new(),
        tokens: vec![TokenSettings {
            name: "nobody".to_owned(),
            digest: TokenDigest::of("a token that no fuzzer finds"),
            scopes: "admin".into(),
        }],
        jwt: Some(JwtSettings {
            secret: Some(SECRET.into()),
            public_key_file: None,
            jwks_file: None,
            issuer: None,
            audience: None,
            require_exp: false,
        }),
    })
    .expect("valid settings")
});

fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let mut lines = text.splitn(4, '\n');
    let mut next = || lines.next().unwrap_or_default();
    let (pattern, topic, scopes, token) = (next(), next(), next(), next());

    let topic = Topic::new(topic).ok();
    if let (Ok(parsed), Some(topic)) = (NamePattern::new(pattern), &topic) {
        compare_with_definition(&parsed, pattern, topic);
    }
    if let Ok(strict) = Scopes::new(&scopes.into()) {
        assert_eq!(Scopes::from_claim(&scopes.into()).as_ref(), Ok(&strict), "{scopes:?}");
        if let Some(topic) = &topic {
            let group = Group::new("g").expect("a valid name");
            let actions = [
                Action::Read(topic),
                Action::Consume { topic, group: &group },
                Action::Publish(topic),
                Action::Manage(topic),
            ];
            let granted = actions.map(|action| strict.allow(action));
            let names_a_right = scopes.contains(':') || scopes.contains("admin");
            assert!(granted == [false; 4] || names_a_right, "{scopes:?}");
        }
    }
    let refused = AUTHENTICATOR.check(token, NOW).expect_err("an unsigned token");
    assert!(!format!("{refused:?} {refused}").contains(SECRET));
    check_signed(token);
    let _ = AllowedOrigins::new(&[pattern]).map(|list| list.check(Some(token), Some(scopes)));
});

fn check_signed(claims: &str) {
    let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let message = format!("{}.{}", part(r#"{"alg":"HS256"}"#), part(claims));
    let key = EncodingKey::from_secret(SECRET.as_bytes());
    let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &key, Algorithm::HS256)
        .expect("HS256 signs anything");
    if let Ok(grant) = AUTHENTICATOR.check(&format!("{message}.{signature}"), NOW) {
        assert!(grant.ends_at().is_none_or(|end| NOW < end), "{claims:?}");
    }
}

fn compare_with_definition(parsed: &NamePattern, pattern: &str, topic: &Topic) {
    assert_eq!(parsed.to_string(), pattern);
    let segments: Vec<_> = pattern.split('.').collect();
    let names: Vec<_> = topic.as_str().split('.').collect();
    let expected = matches_by_definition(&segments, &names);
    assert_eq!(parsed.matches(topic.as_str()), expected, "{pattern} on {topic}");
}

/// The definition of a match, with dynamic programming so that long inputs terminate.
fn matches_by_definition(pattern: &[&str], topic: &[&str]) -> bool {
    let mut fits = vec![vec![false; topic.len() + 1]; pattern.len() + 1];
    fits[pattern.len()][topic.len()] = true;
    for p in (0..pattern.len()).rev() {
        for t in (0..=topic.len()).rev() {
            fits[p][t] = match pattern[p] {
                "**" => fits[p + 1][t] || (t < topic.len() && fits[p][t + 1]),
                segment => {
                    let fits_here = |name: &str| match segment.strip_suffix('*') {
                        Some(start) => name.starts_with(start),
                        None => segment == name,
                    };
                    t < topic.len() && fits_here(topic[t]) && fits[p + 1][t + 1]
                }
            };
        }
    }
    fits[0][0]
}
