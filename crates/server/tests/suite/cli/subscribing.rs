use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::cli::server::Server;

fn with_events(count: u64) -> Server {
    let server = Server::start(&[]);
    let input: String = (1..=count)
        .map(|n| format!("{{\"payload\":{n},\"ts\":{n}000,\"id\":\"n-{n}\"}}\n"))
        .collect();
    server.run(&["publish", "t", "--events"], &input).lines();
    server
}

fn payloads(events: &[Value]) -> Vec<u64> {
    events.iter().map(|event| event["payload"].as_u64().expect("a number")).collect()
}

#[test]
fn acknowledges_printed_events_and_the_group_continues() {
    let server = with_events(500);
    let take = |count| {
        let arguments = ["subscribe", "t", "--group", "g", "--from", "earliest", "--count", count];
        payloads(&server.run(&arguments, "").lines())
    };
    assert_eq!(take("1"), [1]);
    assert_eq!(take("3"), [2, 3, 4]);
    assert_eq!(take("400"), (5..=404).collect::<Vec<_>>());
    assert_eq!(take("96"), (405..=500).collect::<Vec<_>>());
}

#[test]
fn unacknowledged_events_are_redelivered() {
    let server = with_events(2);
    for _ in 0..2 {
        let ran = server.run(
            &["subscribe", "t", "--group", "g", "--from", "earliest", "--count", "2", "--no-ack"],
            "",
        );
        assert_eq!(payloads(&ran.lines()), [1, 2]);
    }
}

#[test]
fn a_new_group_starts_at_from() {
    let server = with_events(4);
    for (group, from, expected) in
        [("a", "ts:3000", vec![3, 4]), ("b", "after:n-1", vec![2, 3, 4]), ("c", "ts:0", vec![1, 2])]
    {
        let count = expected.len().to_string();
        let ran = server
            .run(&["subscribe", "t", "--group", group, "--from", from, "--count", &count], "");
        assert_eq!(payloads(&ran.lines()), expected);
    }
    let unknown = ["subscribe", "t", "--group", "d", "--from", "after:nobody"];
    server.run(&unknown, "").failed_with("unknown_id: ");
    let wrong = ["subscribe", "t", "--group", "d", "--from", "yesterday"];
    server
        .run(&wrong, "")
        .failed_with("earliest, latest, a time such as 2h or 2026-01-02, ts:TIME or after:ID");
    let wrong = ["subscribe", "t", "--group", "d", "--max-in-flight", "0"];
    server.run(&wrong, "").failed_with("bad_frame: opts.maxInFlight");
}

#[test]
fn ctrl_c_stops_after_acknowledging_printed_events() {
    let server = with_events(3);
    let arguments = ["subscribe", "t", "--group", "g", "--from", "earliest"];
    let mut child = server.command(&arguments).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
    for _ in 0..3 {
        out.next().unwrap().unwrap();
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert!(child.wait().unwrap().success());
    server.run(&["publish", "t", "4"], "").lines();
    let ran = server.run(&["subscribe", "t", "--group", "g", "--count", "1"], "");
    assert_eq!(payloads(&ran.lines()), [4]);
}

#[test]
fn a_server_shutdown_is_an_error_with_its_reason_if_reconnecting_fails() {
    let server = with_events(1);
    let arguments = ["subscribe", "t", "--group", "g", "--from", "earliest", "--tries", "0"];
    let mut command = server.command(&arguments);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    server.stop();
    assert!(!child.wait().unwrap().success());
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    let expected = "prombus: the server closed the connection: 1001 the server is shutting down; \
                    gave up reconnecting\n";
    assert_eq!(stderr, expected);
}

#[test]
fn exit_status_65_of_exec_rejects_the_event() {
    let server = with_events(2);
    // The first event is rejected, and not run again.
    let command = "if grep -q n-1; then exit 65; fi";
    let arguments = ["subscribe", "t", "--group", "g", "--from", "earliest", "--count", "2"];
    let ran = server.run(&[&arguments[..], &["--exec", command]].concat(), "");
    assert!(ran.is_success, "{ran:?}");
    assert_eq!(ran.err, "prombus: event n-1: the command rejected the event: exit status: 65\n");
    let dead = ["subscribe", "dlq.t", "--group", "d", "--from", "earliest", "--count", "1"];
    let letters = server.run(&dead, "").lines();
    let letter = &letters[0]["payload"];
    assert_eq!(letter["err"], "the command rejected the event: exit status: 65");
    assert_eq!((&letter["attempts"], &letter["original"]["id"]), (&json!(1), &json!("n-1")));
    // Both events are done for the group.
    server.run(&["publish", "t", "3"], "").lines();
    let ran = server.run(&["subscribe", "t", "--group", "g", "--count", "1"], "");
    assert_eq!(payloads(&ran.lines()), [3]);
}

#[test]
fn the_exit_status_of_exec_acknowledges_or_retries_the_event() {
    let server = with_events(2);
    let dir = tempfile::tempdir().unwrap();
    let seen = dir.path().join("seen");
    // The first event fails until it is dead-lettered; the second succeeds.
    let command = format!("tee -a {} | grep -q n-2", seen.display());
    let arguments = ["subscribe", "t", "--group", "g", "--from", "earliest", "--count", "3"];
    let flags = ["--max-attempts", "2", "--exec", command.as_str()];
    let ran = server.run(&[&arguments[..], &flags].concat(), "");
    assert!(ran.is_success, "{ran:?}");
    assert_eq!(ran.out, "");
    assert_eq!(ran.err.matches("event n-1: the command failed: exit status: 1").count(), 2);
    let seen = std::fs::read_to_string(seen).unwrap();
    let ids = |line: &str| serde_json::from_str::<Value>(line).unwrap()["id"].clone();
    let mut seen: Vec<_> = seen.lines().map(ids).collect();
    seen.sort_by_key(ToString::to_string);
    assert_eq!(seen, [json!("n-1"), json!("n-1"), json!("n-2")]);
    let dead = ["subscribe", "dlq.t", "--group", "d", "--from", "earliest", "--count", "1"];
    let letters = server.run(&dead, "").lines();
    assert_eq!(letters[0]["payload"]["err"], "the command failed: exit status: 1");
    assert_eq!(letters[0]["payload"]["original"]["id"], "n-1");
}
