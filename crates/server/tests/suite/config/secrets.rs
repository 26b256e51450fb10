//! Secrets are never printed.

use prombus_server::auth::TokenDigest;
use prombus_server::config::{Config, RawConfig};

use crate::config::{environment, file, rejected, set};

const SECRET: &str = "hunter2";

#[test]
fn printed_settings_redact_secrets() {
    let mut sources = set(&["auth.tokens=[{token=\"hunter2\",scopes=[\"admin\"]}]"]);
    sources.environment = vec![("PROMBUS_AUTH_JWT_SECRET".into(), SECRET.into())];
    let raw = RawConfig::load(&sources).unwrap();
    let config = Config::validate(&raw).unwrap();
    assert!(config.auth.tokens[0].digest == TokenDigest::of(SECRET));
    assert_eq!(config.auth.jwt.secret.as_ref().unwrap().reveal(), SECRET);
    let printed = raw.to_string();
    for text in [&printed, &format!("{raw:?}"), &format!("{config:?}")] {
        assert!(!text.contains(SECRET), "{text}");
        assert!(text.contains("<redacted>") && text.contains("admin"), "{text}");
    }
    assert!(printed.contains("\nsecret = \"<redacted>\" # environment variable PROMBUS_AUTH_JWT_"));
}

#[test]
fn errors_contain_no_secret() {
    let folder = tempfile::tempdir().unwrap();
    let files = [
        "auth.tokens = \"hunter2\"",
        "auth.tokens = [\"hunter2\"]",
        "auth.tokens = [{token = \"hunter2\", scope = []}]",
        "auth.tokens = [{hunter2 = [\"admin\"]}]",
        "auth.tokens = [{token = \"hunter2\", scopes = \"admin\"}]",
        "auth.tokens = [{token = \"hunter2\", scopes = []}, {token = \"hunter2\", scopes = []}]",
        "auth.jwt.secret = [\"hunter2\"]",
        "auth.jwt.secret = \"hunter2",
        "auth.jwt.secret = hunter2",
        "auth.jwt.sceret = \"hunter2\"",
    ];
    let mut errors: Vec<_> =
        files.iter().map(|text| rejected(&file(folder.path(), text).0)).collect();
    errors.push(rejected(&set(&["auth.jwt.sceret=hunter2"])));
    errors.push(rejected(&set(&["auth.tokens:[{token:hunter2}]"])));
    errors.push(rejected(&environment(&[("PROMBUS_AUTH_TOKENS", "[{token: hunter2}]")])));
    errors.push(rejected(&environment(&[("PROMBUS_AUTH_JWT_SCERET", "hunter2")])));
    for error in errors {
        let text = error.to_string();
        assert!(!text.contains(SECRET), "{text}");
        assert!(!format!("{error:?}").contains(SECRET), "{error:?}");
        assert!(text.to_lowercase().contains("auth") || text.contains("invalid TOML"), "{text}");
    }
}

#[test]
fn an_invalid_token_is_reported_by_its_position() {
    let error = |second: &str| {
        rejected(&set(&[&format!("auth.tokens=[{{token=\"a\",scopes=[]}},{second}]")])).to_string()
    };
    for (second, reason) in [
        ("{token=\"b\",scope=[]}", "unknown key scope; did you mean scopes?"),
        (
            "{token=\"b\",scopes=[],colour=1}",
            "unknown key; the keys are token or token_sha256, name and scopes",
        ),
        (
            "{scopes=[]}",
            "it needs token, or token_sha256, as printed by: printf %s TOKEN | sha256sum",
        ),
        (
            "{token_sha256=\"b\",scopes=[]}",
            "token_sha256 must be 64 hexadecimal digits, as printed by: printf %s TOKEN | sha256sum",
        ),
        ("{token=\"b\",token_sha256=\"b\",scopes=[]}", "set token or token_sha256, not both"),
        (
            "{token=\"b\",name=\"\",scopes=[]}",
            "name must be a string of 1 to 100 bytes without control characters",
        ),
        (
            "{token=\"b\",name=\"a\\nb\",scopes=[]}",
            "name must be a string of 1 to 100 bytes without control characters",
        ),
        (
            "{token=\"b\",name=1,scopes=[]}",
            "name must be a string of 1 to 100 bytes without control characters",
        ),
        (
            "{token_sha256=\"ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb\",scopes=[]}",
            "it repeats an earlier token",
        ),
        ("{token=\"\",scopes=[]}", "token must be a non-empty string"),
        ("{token=\"b\"}", "scopes must be a list of strings"),
        ("{token=\"b\",scopes=[1]}", "scopes must be a list of strings"),
        ("{token=\"a\",scopes=[]}", "it repeats an earlier token"),
    ] {
        let expected =
            format!("auth.tokens (--set auth.tokens) has an invalid element 2: {reason}");
        assert_eq!(error(second), expected);
    }
}

#[test]
fn a_token_may_be_given_by_its_digest_and_have_a_name() {
    // printf %s hunter2 | sha256sum
    let digest = "f52fbd32b2b3b86ff88ef6c490628285f482af15ddcb29541f94bcf526a3f6c7";
    let sources = set(&[&format!(
        "auth.tokens=[{{token=\"a\",scopes=[]}},{{token_sha256=\"{digest}\",name=\"billing\",scopes=[]}}]"
    )]);
    let raw = RawConfig::load(&sources).unwrap();
    let tokens = Config::validate(&raw).unwrap().auth.tokens;
    let names: Vec<_> = tokens.iter().map(|token| token.name.as_str()).collect();
    assert_eq!(names, ["token-1", "billing"]);
    assert!(tokens[1].digest == TokenDigest::of(SECRET));
    let printed = format!("{raw} {raw:?} {tokens:?}");
    assert!(printed.contains("billing"), "{printed}");
    assert!(!printed.contains(digest), "{printed}");
}

#[test]
fn a_file_with_digests_only_holds_no_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let by_digest = format!("{{token_sha256=\"{}\",name=\"a\",scopes=[]}}", "0".repeat(64));
    let by_token = "{token=\"hunter2\",scopes=[]}";
    for (tokens, holds_secrets) in [
        (String::new(), false),
        (by_digest.clone(), false),
        (by_token.to_owned(), true),
        (format!("{by_digest},{by_token}"), true),
    ] {
        let (sources, _) = file(folder.path(), &format!("auth.tokens = [{tokens}]"));
        let raw = RawConfig::load(&sources).unwrap();
        assert_eq!(!raw.files_with_secrets().is_empty(), holds_secrets, "{tokens}");
    }
}
