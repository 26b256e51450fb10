//! Properties of every key of the default file.

use std::collections::BTreeSet;

use prombus_server::config::{Config, ConfigError, DEFAULT_FILE, RawConfig, Sources};
use toml::Value;

use crate::config::{environment, file, rejected, set};

/// Returns all keys of the default file with their values.
fn keys() -> Vec<(String, Value)> {
    fn below(section: &str, table: &toml::Table, keys: &mut Vec<(String, Value)>) {
        for (name, value) in table {
            let key = if section.is_empty() { name.clone() } else { format!("{section}.{name}") };
            match value {
                // Those of topics are no keys of their own.
                Value::Table(_) if key == "topics" => {}
                Value::Table(inner) => below(&key, inner, keys),
                value => keys.push((key, value.clone())),
            }
        }
    }
    let mut keys = Vec::new();
    below("", &toml::from_str(DEFAULT_FILE).expect("the default file is TOML"), &mut keys);
    assert!(keys.len() > 30, "{keys:?}");
    keys
}

fn variable(key: &str) -> String {
    format!("PROMBUS_{}", key.replace('.', "_").to_uppercase())
}

/// Returns a different valid value, as written in a shell.
fn different_value(key: &str, value: &Value) -> String {
    match (key, value) {
        ("server.ws" | "server.http", _) => "127.0.0.1:9999".to_owned(),
        ("server.engine", _) => "memory".to_owned(),
        ("log.level", _) => "warn".to_owned(),
        ("log.format", _) => "json".to_owned(),
        ("server.tls.client_auth", _) => "required".to_owned(),
        ("tracing.otlp_endpoint", _) => "http://127.0.0.1:4318".to_owned(),
        ("auth.certificates", _) => r#"[{subject = "CN=c", scopes = ["admin"]}]"#.to_owned(),
        ("auth.tokens", _) => r#"[{token = "t", scopes = ["admin"]}]"#.to_owned(),
        ("auth.allowed_origins", _) => r#"["https://app.example.com"]"#.to_owned(),
        (_, Value::Boolean(truth)) => (!truth).to_string(),
        (_, Value::Integer(number)) => (number + 1).to_string(),
        (_, Value::Float(_)) => "0.5".to_owned(),
        (_, Value::String(_)) => "other".to_owned(),
        other => panic!("no different value for {other:?}"),
    }
}

/// Returns what must be set together with `key`, and a value of `key` to compare with, if its default
/// does not go with that.
fn companions(key: &str) -> (&'static [&'static str], Option<&'static str>) {
    const CERTIFICATE: [&str; 2] = ["server.tls.cert_file=file", "server.tls.key_file=file"];
    const CA: &str = "server.tls.client_ca_file=file";
    const OPTIONAL: &str = "server.tls.client_auth=optional";
    match key {
        "server.tls.cert_file" => (&[CERTIFICATE[1]], Some("file")),
        "server.tls.key_file" => (&[CERTIFICATE[0]], Some("file")),
        "server.tls.client_auth" => (&[CERTIFICATE[0], CERTIFICATE[1], CA], Some("optional")),
        "server.tls.client_ca_file" => (&[CERTIFICATE[0], CERTIFICATE[1], OPTIONAL], Some("file")),
        "auth.certificates" => (&[CERTIFICATE[0], CERTIFICATE[1], CA, OPTIONAL], None),
        "auth.jwt.issuer" | "auth.jwt.audience" => (&["auth.jwt.jwks_file=file"], Some("file")),
        _ => (&[], None),
    }
}

fn loaded_debug(sources: &Sources) -> String {
    format!("{:?}", Config::load(sources).unwrap_or_else(|error| panic!("{error}")))
}

#[test]
fn each_can_be_set_by_variable_and_by_flag() {
    let mut variables = BTreeSet::new();
    for (key, value) in keys() {
        let name = variable(&key);
        assert!(variables.insert(name.clone()), "two keys map to {name}");
        let other = different_value(&key, &value);

        let (beside, itself) = companions(&key);
        let beside: Vec<String> = beside.iter().map(|&text| text.to_owned()).collect();
        let itself = itself.map(|value| format!("{key}={value}"));
        let before = beside.iter().cloned().chain(itself).collect();
        let before = loaded_debug(&Sources { set: before, ..Sources::default() });

        let mut by_set = set(&[&format!("{key}={other}")]);
        by_set.set.extend(beside.clone());
        assert_ne!(loaded_debug(&by_set), before, "--set {key}");

        let mut by_variable = environment(&[(&name, &other)]);
        by_variable.set = beside;
        assert_eq!(loaded_debug(&by_variable), loaded_debug(&by_set), "{name}");
    }
}

#[test]
fn a_value_of_the_wrong_type_is_reported_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    for (key, _) in keys() {
        let (sources, path) = file(folder.path(), &format!("\n\n{key} = 1979-05-27\n"));
        let error = rejected(&sources).to_string();
        let prefix = format!("{key} ({}, line 3) is ", path.display());
        assert!(error.starts_with(&prefix), "{error}");
        assert!(error.contains("must be "), "{error}");
    }
}

#[test]
fn each_has_a_comment_that_names_the_range_of_numbers() {
    let mut numbers = 0;
    for (key, value) in keys() {
        let (section, name) = key.rsplit_once('.').unwrap();
        let from = DEFAULT_FILE.find(&format!("\n[{section}]\n")).unwrap();
        let (above, _) = DEFAULT_FILE[from..].split_once(&format!("\n{name} = ")).unwrap();
        let comment = above.lines().last().unwrap();
        assert!(comment.starts_with("# "), "{key}: {comment}");
        if value.is_integer() {
            let too_small = rejected(&set(&[&format!("{key}=-1")]));
            let too_large = rejected(&set(&[&format!("{key}=9223372036854775807")]));
            let ConfigError::InvalidValue { allowed, found, .. } = too_small else {
                panic!("{too_small}")
            };
            assert_eq!(found, "-1");
            assert!(too_large.to_string().contains(&allowed), "{too_large}");
            let range = allowed.strip_prefix("a whole number, ").unwrap();
            assert!(comment.contains(range), "{key} is {range}, but its comment says {comment}");
            let (lowest, highest) = range.split_once(" to ").unwrap();
            for end in [lowest, highest] {
                Config::load(&set(&[&format!("{key}={end}")])).unwrap();
            }
            numbers += 1;
        }
    }
    assert!(numbers > 10);
}

#[test]
fn printed_settings_are_complete_and_can_be_loaded_again() {
    let folder = tempfile::tempdir().unwrap();
    let sources = set(&[
        "gateway.max_frame_bytes=2048",
        r#"topics."a.b".limit.capacity=5"#,
        r#"topics."a.b".retention_bytes=7"#,
        "topics.c.durability=buffered",
        "auth.jwt.jwks_file=1234",
        r#"auth.jwt.issuer="a \"quoted\" one""#,
    ]);
    let printed = RawConfig::load(&sources).unwrap().to_string();
    for (key, _) in keys() {
        let name = key.rsplit('.').next().unwrap();
        assert!(printed.contains(&format!("\n{name} = ")), "{key} is not in\n{printed}");
    }
    assert!(
        printed.contains("\nmax_frame_bytes = 2048 # --set gateway.max_frame_bytes\n"),
        "{printed}"
    );
    assert!(printed.contains("\n[topics.\"a.b\"]\nlimit.capacity = 5 # --set "), "{printed}");
    let (again, _) = file(folder.path(), &printed);
    assert_eq!(loaded_debug(&again), loaded_debug(&sources));
}
