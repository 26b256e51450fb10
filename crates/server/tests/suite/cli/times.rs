use serde_json::json;

use crate::cli::server::Server;

#[test]
fn times_are_dates_durations_or_milliseconds() {
    let server = Server::start(&[]);
    let publish = |ts: &str, payload: &str| {
        server.run(&["publish", "t", payload, "--ts", ts], "").lines();
    };
    publish("2026-01-02T03:04:05Z", "1");
    publish("1767323046000", "2"); // 2026-01-02T03:04:06Z
    publish("2h30m", "3");
    publish("now", "4");
    let payloads = |arguments: &[&str]| -> Vec<u64> {
        let events = server.run(arguments, "").lines();
        events.iter().map(|event| event["payload"].as_u64().unwrap()).collect()
    };
    assert_eq!(payloads(&["replay", "t", "--ts", "2026-01-02T03:04:06Z"]), [2, 3, 4]);
    assert_eq!(payloads(&["replay", "t", "--ts", "1h"]), [4]);
    assert_eq!(payloads(&["export", "t", "--from-ts", "2026-01-02", "--to-ts", "90m"]), [1, 2, 3]);
    assert_eq!(payloads(&["export", "t", "--to-ts", "2026-01-02T03:04:05Z"]), [1]);
    let subscribe = |from: &str, group: &str| {
        payloads(&["subscribe", "t", "--group", group, "--from", from, "--count", "1"])
    };
    assert_eq!(subscribe("3h", "a"), [3]);
    assert_eq!(subscribe("ts:2026-01-02T03:04:06Z", "b"), [2]);
    for wrong in [
        &["replay", "t", "--ts", "yesterday"][..],
        &["export", "t", "--from-ts", "1mo"],
        &["publish", "t", "1", "--ts", "2026-13-01"],
    ] {
        let ran = server.run(wrong, "");
        ran.failed_with("expected a time such as 7d");
        assert_eq!(ran.code, Some(2));
    }
}

#[test]
fn durations_and_sizes_have_units() {
    let server = Server::start(&[]);
    let set = ["topics", "t", "--set", "retention_ms=2h30m", "--set", "retention_bytes=1.5GiB"];
    let own = &server.run(&set, "").lines()[0]["own"];
    let bytes = 3_u64 << 29;
    assert_eq!(*own, json!({"retention_ms": 9_000_000, "retention_bytes": bytes}));
    let flags = ["topics", "t", "--retention", "7d", "--retention-bytes", "1GB"];
    let own = &server.run(&flags, "").lines()[0]["own"];
    assert_eq!(*own, json!({"retention_ms": 604_800_000, "retention_bytes": 1_000_000_000}));
    let subscribe = ["subscribe", "t", "--group", "g", "--ack-timeout", "soon"];
    server.run(&subscribe, "").failed_with("expected a duration such as 7d");
    // The old name of the flag, in milliseconds.
    server.run(&["publish", "t", "1"], "").lines();
    let subscribe = ["subscribe", "t", "--group", "g", "--from", "earliest", "--count", "1"];
    let old = server.run(&[&subscribe[..], &["--ack-timeout-ms", "5000"]].concat(), "");
    assert_eq!(old.lines()[0]["payload"], 1);
}
