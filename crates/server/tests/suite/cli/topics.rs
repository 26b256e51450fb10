use serde_json::json;

use crate::cli::server::Server;

#[test]
fn prints_one_json_object_per_topic() {
    let server = Server::start(&[]);
    let none = server.run(&["topics"], "");
    assert!(none.is_success && none.out.is_empty(), "{none:?}");
    server.run(&["publish", "b", "1", "2"], "").lines();
    server.run(&["publish", "a", "1"], "").lines();
    let topics = server.run(&["topics"], "").lines();
    assert_eq!([&topics[0]["topic"], &topics[1]["topic"]], ["a", "b"]);
    assert_eq!((&topics[1]["events"], &topics[1]["last_seq"]), (&json!(2), &json!(2)));
    let one = server.run(&["topics", "b"], "").lines();
    assert_eq!((&one[0]["topic"], &one[0]["own"]), (&json!("b"), &json!({})));
    server.run(&["topics", "nobody"], "").failed_with("unknown_topic: ");
}

#[test]
fn changes_one_setting_and_keeps_the_others() {
    let server = Server::start(&[]);
    let set = |changes: &[&str]| {
        let flags = changes.iter().flat_map(|change| ["--set", change]);
        let arguments: Vec<_> = ["topics", "t"].into_iter().chain(flags).collect();
        server.run(&arguments, "").lines()[0]["own"].clone()
    };
    assert_eq!(set(&["retention_ms=60000"]), json!({"retention_ms": 60000}));
    let limit = json!({"capacity": 50, "refill_per_sec": 10});
    let expected = json!({"retention_ms": 60000, "limit": limit, "durability": "buffered"});
    assert_eq!(set(&["limit=50/10", "durability=buffered"]), expected);
    let expected = json!({"limit": limit, "durability": "buffered", "retention_bytes": 1000000});
    assert_eq!(set(&["retention_ms=", "retention_bytes=1000000"]), expected);
    let topic = &server.run(&["topics", "t"], "").lines()[0];
    assert_eq!(topic["own"], expected);
    assert_eq!(topic["settings"]["durability"], "buffered");
}

#[test]
fn an_invalid_setting_says_what_is_expected() {
    let server = Server::start(&[]);
    for (change, reason, code) in [
        ("retention=1", "the settings are retention_ms, retention_bytes, durability, limit", 2),
        ("retention_ms=soon", "a duration such as 7d", 2),
        ("limit=5", "CAPACITY/REFILL_PER_SEC", 2),
        ("durability=never", "durability must be", 1),
        ("limit=0/5", "limit.capacity must be", 1),
    ] {
        let ran = server.run(&["topics", "t", "--set", change], "");
        ran.failed_with(reason);
        assert_eq!(ran.code, Some(code), "{change}");
    }
    assert_eq!(server.run(&["topics", "--set", "limit="], "").code, Some(2));
    assert!(server.run(&["topics"], "").lines().is_empty(), "no topic was created");
}
