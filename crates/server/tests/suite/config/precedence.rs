//! Which source counts.

use prombus_engine::Durability;
use prombus_proto::Topic;
use prombus_server::config::{Bucket, EngineChoice, Flag, Sources};

use crate::config::{environment, file, loaded, set};

#[test]
fn a_later_source_wins() {
    let folder = tempfile::tempdir().unwrap();
    let ports = |sources: &Sources| loaded(sources).server.ws.port();
    let (mut sources, _) = file(folder.path(), "[server]\nws = \"127.0.0.1:1\"\n");
    assert_eq!(ports(&sources), 1);
    sources.environment = vec![("PROMBUS_SERVER_WS".into(), "127.0.0.1:2".into())];
    assert_eq!(ports(&sources), 2);
    sources.set = vec!["server.ws=127.0.0.1:3".to_owned()];
    assert_eq!(ports(&sources), 3);
    sources.set.push("server.ws=127.0.0.1:4".to_owned());
    assert_eq!(ports(&sources), 4);
    sources.flags = vec![Flag { name: "--ws", key: "server.ws", value: "127.0.0.1:5".into() }];
    assert_eq!(ports(&sources), 5);
}

#[test]
fn what_a_source_leaves_out_stays() {
    let folder = tempfile::tempdir().unwrap();
    let (mut sources, _) = file(folder.path(), "limits.connection.capacity = 7\n");
    sources.set = vec!["limits.connection.refill_per_sec=8".to_owned()];
    let limits = loaded(&sources).limits;
    assert_eq!(limits.connection, Bucket { capacity: 7, refill_per_sec: 8 });
    assert_eq!(limits.topic, Bucket { capacity: 1000, refill_per_sec: 1000 });
}

#[test]
fn a_topic_is_set_by_every_source() {
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
    assert_eq!(topic.limit, Some(Bucket { capacity: 5, refill_per_sec: 1000 }));
    let other = &topics[&Topic::new("c").unwrap()];
    assert_eq!((other.durability, other.limit), (Some(Durability::Fsync), None));
}

#[test]
fn values_need_no_quotes_where_none_are_usual() {
    let config = loaded(&set(&["server.engine = memory", "server.data = \"a b\""]));
    assert_eq!(config.server.engine, EngineChoice::Memory);
    assert_eq!(config.server.data.to_str(), Some("a b"));
    let digits = loaded(&environment(&[("PROMBUS_AUTH_JWT_SECRET", "12345678")]));
    assert_eq!(digits.auth.jwt.secret.unwrap().reveal(), "12345678");
    assert_eq!(loaded(&set(&["gateway.max_frame_bytes=2_048"])).gateway.max_frame_bytes, 2048);
}

#[test]
fn tokens_come_as_toml_or_json() {
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
        assert_eq!(auth.tokens[0].token.reveal(), "t");
        assert_eq!(auth.tokens[0].scopes, ["publish:a.*", "admin"]);
    }
}

#[test]
fn variables_of_others_are_none_of_ours() {
    let others = [("PROMBUS_CRASH_ROUNDS", "3"), ("PROMBUS_URL", "x"), ("LIMITS_ENABLED", "x")];
    loaded(&environment(&others));
}
