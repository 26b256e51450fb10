//! `prombus groups show`, `seek`, `set` and `delete`.

use serde_json::{Value, json};

use crate::cli::server::Server;
use crate::cli::terminal::run_on_terminal;

/// Starts a server with five events, of which the group has finished two.
fn started() -> Server {
    let server = Server::start(&[]);
    let events: String = (1..=5)
        .map(|n| format!("{{\"id\": \"e{n}\", \"ts\": {}, \"payload\": {n}}}\n", n * 100))
        .collect();
    server.run(&["import", "t"], &events).lines();
    consume(&server, 2);
    server
}

/// Consumes events and returns their payloads.
fn consume(server: &Server, count: usize) -> Vec<Value> {
    let count = count.to_string();
    let arguments = ["subscribe", "t", "--group", "g", "--from", "earliest", "--count", &count];
    let events = server.run(&arguments, "").lines();
    events.iter().map(|event| event["payload"].clone()).collect()
}

#[test]
fn shows_a_group() {
    let server = started();
    let shown = server.run(&["groups", "show", "t", "g"], "").lines();
    assert_eq!(shown.len(), 1);
    let group = &shown[0];
    assert_eq!((&group["topic"], &group["group"]), (&json!("t"), &json!("g")));
    assert_eq!((&group["seq"], &group["max_attempts"]), (&json!(2), &json!(5)));
    assert_eq!(group["oldest"]["id"], "e3");
    server.run(&["groups", "show", "t", "nobody"], "").failed_with("unknown_group: ");
    server.run(&["groups", "show", "nothing", "g"], "").failed_with("unknown_topic: ");
    assert_eq!(server.run(&["groups", "show", "t"], "").code, Some(2));
    // The list is still there.
    assert_eq!(server.run(&["groups", "t"], "").lines()[0]["lag_events"], 3);
}

#[test]
fn seeks_by_every_flag() {
    let server = started();
    let seek = |target: &[&str]| {
        let arguments = [&["groups", "seek", "t", "g"], target].concat();
        server.run(&arguments, "").lines()[0].clone()
    };
    for (target, next) in [
        (&["--to", "earliest"][..], 1),
        (&["--to", "latest"], 6),
        (&["--to", "ts:250"], 3),
        (&["--to", "1970-01-01T00:00:00.250Z"], 3),
        (&["--to", "7d"], 6),
        (&["--to", "after:e4"], 5),
        (&["--after-id", "e3"], 4),
        (&["--seq", "2"], 2),
    ] {
        let sought = seek(target);
        assert_eq!((&sought["next_seq"], &sought["events"]), (&json!(next), &json!(6 - next)));
        assert_eq!(sought["dry_run"], false);
    }
    let dry = seek(&["--to", "earliest", "--dry-run"]);
    assert_eq!((&dry["next_seq"], &dry["dry_run"]), (&json!(1), &json!(true)));
    assert_eq!(consume(&server, 4), [2, 3, 4, 5], "the dry run changed nothing");
    seek(&["--seq", "5", "--honour-marks"]);
    assert_eq!(consume(&server, 1), [5]);
}

#[test]
fn rejects_a_seek_that_is_unclear() {
    let server = started();
    for target in [
        &[][..],
        &["--to", "earliest", "--seq", "1"],
        &["--seq", "0"],
        &["--seq", "1", "--after-id", "e1"],
        &["--to", "5"],
        &["--to", "yesterday"],
    ] {
        let arguments = [&["groups", "seek", "t", "g"], target].concat();
        assert_eq!(server.run(&arguments, "").code, Some(2), "{target:?}");
    }
    let seek = |group, target: &[&str]| {
        server.run(&[&["groups", "seek", "t", group], target].concat(), "")
    };
    seek("g", &["--after-id", "nobody"]).failed_with("unknown_id: ");
    seek("nobody", &["--to", "earliest"]).failed_with("unknown_group: ");
}

#[test]
fn sets_the_attempts_of_a_group() {
    let server = started();
    let set = |count: &str| server.run(&["groups", "set", "t", "g", "--max-attempts", count], "");
    assert_eq!(set("9").lines()[0]["max_attempts"], 9);
    assert_eq!(set("default").lines()[0]["max_attempts"], 5);
    for wrong in ["0", "1001", "many"] {
        assert_eq!(set(wrong).code, Some(2), "{wrong}");
    }
    assert_eq!(server.run(&["groups", "set", "t", "g"], "").code, Some(2));
}

#[test]
fn deletes_groups() {
    let server = started();
    let other = ["subscribe", "t", "--group", "h", "--from", "earliest", "--count", "1"];
    server.run(&other, "").lines();
    let deleted = server.run(&["groups", "delete", "t", "g", "h"], "").lines();
    assert_eq!(deleted[0], json!({"topic": "t", "group": "g", "deleted": true}));
    assert_eq!(deleted[1]["group"], "h");
    assert_eq!(server.run(&["groups", "t"], "").lines(), Vec::<Value>::new());
    server.run(&["groups", "delete", "t", "g"], "").failed_with("g: unknown_group: ");
    assert_eq!(server.run(&["groups", "delete", "t"], "").code, Some(2));
}

#[test]
fn a_terminal_shows_text() {
    let server = started();
    for (arguments, text) in [
        (&["groups", "show", "t", "g"][..], "oldest unfinished event: seq 3, id e3, stored "),
        (&["groups", "show", "t", "g", "--json"], "\"why\":\"no_members\""),
        (
            &["groups", "seek", "t", "g", "--seq", "4", "--dry-run"],
            "g would go on at seq 4 of t, with 2 events",
        ),
        (&["groups", "seek", "t", "g", "--seq", "4"], "g goes on at seq 4 of t, with 2 events"),
        (&["groups", "set", "t", "g", "--max-attempts", "9"], "max attempts       9"),
        (&["groups", "delete", "t", "g"], "deleted g of t"),
    ] {
        let shown = run_on_terminal(server.command(arguments), "");
        assert_eq!(shown.code, Some(0), "{shown:?}");
        assert!(shown.screen.contains(text), "{text} is not in {}", shown.screen);
    }
}

#[test]
fn changing_a_group_needs_the_right_to_manage() {
    let server = Server::start(&[
        "auth.tokens=[{token = \"consumer\", scopes = [\"publish:t\", \"consume:t\"]}]",
    ]);
    let run = |arguments: &[&str]| server.run(&[arguments, &["--token", "consumer"]].concat(), "");
    run(&["publish", "t", "1"]).lines();
    run(&["subscribe", "t", "--group", "g", "--from", "earliest", "--count", "1"]).lines();
    run(&["groups", "show", "t", "g"]).lines();
    run(&["groups", "seek", "t", "g", "--to", "earliest"]).failed_with("forbidden: ");
    run(&["groups", "set", "t", "g", "--max-attempts", "9"]).failed_with("forbidden: ");
    run(&["groups", "delete", "t", "g"]).failed_with("forbidden: ");
}
