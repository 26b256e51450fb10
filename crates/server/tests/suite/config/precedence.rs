//! Which source takes precedence.

use prombus_engine::Durability;
use prombus_proto::Topic;
use prombus_server::auth::TokenDigest;
use prombus_server::config::{BucketConfig, EngineConfig, Flag, Sources};

use crate::config::{environment, file, loaded, set};

#[test]
fn later_sources_override_earlier_ones() {
    let folder = tempfile::tempdir().unwrap();
    let port = |sources: &Sources| loaded(sources).server.ws.port();
    let (mut sources, _) = file(folder.path(), "[server]\nws = \"127.0.0.1:1\"\n");
    assert_eq!(port(&sources), 1);
    sources.environment = vec![("PROMBUS_SERVER_WS".into(), "127.0.0.1:2".into())];
    assert_eq!(port(&sources), 2);
    sources.set = vec!["server.ws=127.0.0.1:3".to_owned()];
    assert_eq!(port(&sources), 3);
    sources.set.push("server.ws=127.0.0.1:4".to_owned());
    assert_eq!(port(&sources), 4);
    sources.flags = vec![Flag { name: "--ws", key: "server.ws", value: "127.0.0.1:5".into() }];
    assert_eq!(port(&sources), 5);
}

#[test]
fn settings_missing_from_a_source_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (mut sources, _) = file(folder.path(), "limits.connection.capacity = 7\n");
    sources.set = vec!["limits.connection.refill_per_sec=8".to_owned()];
    let limits = loaded(&sources).limits;
    assert_eq!(limits.connection, BucketConfig { capacity: 7, refill_per_sec: 8 });
    assert_eq!(limits.topic, BucketConfig { capacity: 1000, refill_per_sec: 1000 });
}

#[test]
fn every_source_can_configure_a_topic() {
    let folder = tempfile::tempdir().unwrap();
    let (mut sources, _) = file(
        folder.path(),
        "[topics.\"a.b\"]\ndurability = \"buffered\"\nretention_ms = 60000\nlimit.capacity = 1\n",
    );
    let variable = r#"{"a.b": {"retention_bytes": 9}, "c": {"durability": "fsync"}}"#;
    sources.environment = vec![("PROMBUS_TOPICS".into(), variable.into())];
    sources.set = vec![r#"topics."a.b".limit.capacity=5"#.to_owned()];
    let topics = loaded(&sources).topics;
    let topic = &topics[&Topic::new("a.b").unwrap()];
    assert_eq!(topic.durability, Some(Durability::Buffered));
    assert_eq!((topic.retention_ms, topic.retention_bytes), (Some(60_000), Some(9)));
    assert_eq!(topic.limit, Some(BucketConfig { capacity: 5, refill_per_sec: 1000 }));
    let other = &topics[&Topic::new("c").unwrap()];
    assert_eq!((other.durability, other.limit), (Some(Durability::Fsync), None));
}

#[test]
fn quotes_are_optional_outside_files() {
    let config = loaded(&set(&["server.engine = memory", "server.data = \"a b\""]));
    assert_eq!(config.server.engine, EngineConfig::Memory);
    assert_eq!(config.server.data.to_str(), Some("a b"));
    let digits = loaded(&environment(&[("PROMBUS_AUTH_JWT_SECRET", "12345678")]));
    assert_eq!(digits.auth.jwt.secret.unwrap().reveal(), "12345678");
    assert_eq!(loaded(&set(&["gateway.max_frame_bytes=2_048"])).gateway.max_frame_bytes, 2048);
}

#[test]
fn tokens_are_toml_or_json() {
    let folder = tempfile::tempdir().unwrap();
    let (tables, _) = file(
        folder.path(),
        "[[auth.tokens]]\ntoken = \"t\"\nscopes = [\"publish:a.*\", \"admin\"]\n",
    );
    let toml = r#"[{token = "t", scopes = ["publish:a.*", "admin"]}]"#;
    let json = r#"[{"token": "t", "scopes": ["publish:a.*", "admin"]}]"#;
    for sources in [
        tables,
        environment(&[("PROMBUS_AUTH_TOKENS", toml)]),
        environment(&[("PROMBUS_AUTH_TOKENS", json)]),
        set(&[&format!("auth.tokens={json}")]),
    ] {
        let auth = loaded(&sources).auth;
        assert!(auth.is_required());
        assert!(auth.tokens[0].digest == TokenDigest::of("t"));
        assert_eq!(auth.tokens[0].scopes, ["publish:a.*", "admin"]);
    }
}

#[test]
fn ignores_variables_of_other_programs() {
    let others = [("PROMBUS_CRASH_ROUNDS", "3"), ("PROMBUS_URL", "x"), ("LIMITS_ENABLED", "x")];
    loaded(&environment(&others));
}
