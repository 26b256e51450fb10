//! Secrets are shown nowhere.

use prombus_server::config::{Config, Settings};

use crate::config::{environment, file, refused, set};

const SECRET: &str = "hunter2";

#[test]
fn they_are_not_printed() {
    let mut sources = set(&["auth.tokens=[{token=\"hunter2\",scopes=[\"admin\"]}]"]);
    sources.environment = vec![("PROMBUS_AUTH_JWT_SECRET".into(), SECRET.into())];
    let settings = Settings::gather(&sources).unwrap();
    let config = Config::check(&settings).unwrap();
    assert_eq!(config.auth.tokens[0].token.reveal(), SECRET);
    assert_eq!(config.auth.jwt.secret.as_ref().unwrap().reveal(), SECRET);
    let printed = settings.to_string();
    for text in [&printed, &format!("{settings:?}"), &format!("{config:?}")] {
        assert!(!text.contains(SECRET), "{text}");
        assert!(text.contains("<redacted>") && text.contains("admin"), "{text}");
    }
    assert!(printed.contains("\nsecret = \"<redacted>\" # environment variable PROMBUS_AUTH_JWT_"));
}

#[test]
fn they_are_in_no_refusal() {
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
    let mut refusals: Vec<_> =
        files.iter().map(|text| refused(&file(folder.path(), text).0)).collect();
    refusals.push(refused(&set(&["auth.jwt.sceret=hunter2"])));
    refusals.push(refused(&set(&["auth.tokens:[{token:hunter2}]"])));
    refusals.push(refused(&environment(&[("PROMBUS_AUTH_TOKENS", "[{token: hunter2}]")])));
    refusals.push(refused(&environment(&[("PROMBUS_AUTH_JWT_SCERET", "hunter2")])));
    for error in refusals {
        let text = error.to_string();
        assert!(!text.contains(SECRET), "{text}");
        assert!(!format!("{error:?}").contains(SECRET), "{error:?}");
        assert!(text.to_lowercase().contains("auth") || text.contains("not TOML"), "{text}");
    }
}

#[test]
fn a_wrong_token_is_named_by_its_number() {
    let wrong = |second: &str| {
        refused(&set(&[&format!("auth.tokens=[{{token=\"a\",scopes=[]}},{second}]")])).to_string()
    };
    for (second, reason) in [
        ("{token=\"b\",scope=[]}", "with the unknown key scope; did you mean scopes?"),
        ("{token=\"b\",scopes=[],colour=1}", "with an unknown key; it has only token and scopes"),
        ("{token=\"\",scopes=[]}", "whose token is not a text, or empty"),
        ("{token=\"b\"}", "whose scopes are not a list of texts"),
        ("{token=\"b\",scopes=[1]}", "whose scopes are not a list of texts"),
        ("{token=\"a\",scopes=[]}", "with the token of an earlier one"),
    ] {
        let expected = format!("auth.tokens (--set auth.tokens) has element 2 {reason}");
        assert_eq!(wrong(second), expected);
    }
}
