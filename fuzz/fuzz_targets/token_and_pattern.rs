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
use prombus_proto::{Timestamp, Topic};
use prombus_server::auth::{
    Action, AllowedOrigins, AuthSettings, Authenticator, JwtSettings, Scopes, TokenSettings,
    TopicPattern,
};

const SECRET: &str = "the secret of the fuzz target";
const NOW: Timestamp = Timestamp(1_000_000);

static AUTHENTICATOR: LazyLock<Authenticator> = LazyLock::new(|| {
    Authenticator::new(AuthSettings {
        tokens: vec![TokenSettings {
            token: "a token that no fuzzer finds".into(),
            scopes: "admin".into(),
        }],
        jwt: Some(JwtSettings { secret: Some(SECRET.into()), ..JwtSettings::default() }),
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
    if let (Ok(parsed), Some(topic)) = (TopicPattern::new(pattern), &topic) {
        compare_with_definition(&parsed, pattern, topic);
    }
    if let Ok(strict) = Scopes::new(&scopes.into()) {
        assert_eq!(Scopes::from_claim(&scopes.into()).as_ref(), Ok(&strict), "{scopes:?}");
        if let Some(topic) = &topic {
            let granted = [Action::Publish(topic), Action::Subscribe(topic)]
                .map(|action| strict.allow(action));
            assert!(granted == [false; 2] || scopes.contains(':'), "{scopes:?}");
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

fn compare_with_definition(parsed: &TopicPattern, pattern: &str, topic: &Topic) {
    assert_eq!(parsed.to_string(), pattern);
    let segments: Vec<_> = pattern.split('.').collect();
    let names: Vec<_> = topic.as_str().split('.').collect();
    let expected = matches_by_definition(&segments, &names);
    assert_eq!(parsed.matches(topic), expected, "{pattern} on {topic}");
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
                    t < topic.len() && (segment == "*" || segment == topic[t]) && fits[p + 1][t + 1]
                }
            };
        }
    }
    fits[0][0]
}
