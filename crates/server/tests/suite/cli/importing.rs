use std::io::{Read, Write};
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::cli::proxy::{Fate, Proxy};
use crate::cli::server::Server;

/// Returns the number of events in the topic `t`.
fn events(server: &Server) -> u64 {
    let topics = server.run(&["topics"], "").lines();
    let topic = topics.iter().find(|topic| topic["topic"] == "t");
    topic.map_or(0, |topic| topic["events"].as_u64().expect("a number"))
}

fn payloads(server: &Server) -> Vec<Value> {
    let events = server.run(&["replay", "t"], "").lines();
    events.into_iter().map(|event| event["payload"].clone()).collect()
}

fn numbered(count: u64) -> String {
    (1..=count).map(|n| format!("{{\"payload\":{n}}}\n")).collect()
}

#[test]
fn lines_of_all_sizes_keep_their_order_across_requests() {
    let server = Server::start(&[]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("lines.ndjson");
    let mut lines = numbered(25_000);
    for n in 1..=30 {
        let large = "x".repeat(n * 30_000);
        lines += &format!("{{\"payload\":{{\"n\":{n},\"x\":\"{large}\"}}}}\n\n");
    }
    lines += "{\"payload\":\"without a newline\"}";
    std::fs::write(&file, &lines).unwrap();
    let ran = server.run(&["import", "t", file.to_str().unwrap()], "");
    let expected = "{\"count\":25031,\"duplicates\":0,\"first_seq\":1,\"last_seq\":25031}\n";
    assert_eq!((ran.out.as_str(), ran.err.as_str()), (expected, ""));
    let payloads = payloads(&server);
    assert_eq!(payloads[..25_000], (1..=25_000).map(Value::from).collect::<Vec<_>>());
    let large: Vec<_> = payloads[25_000..25_030].iter().map(|payload| &payload["n"]).collect();
    assert_eq!(large, (1..=30).map(Value::from).collect::<Vec<_>>().iter().collect::<Vec<_>>());
    assert_eq!(payloads[25_030], "without a newline");
}

#[test]
fn an_empty_input_stores_nothing() {
    let server = Server::start(&[]);
    let empty = "{\"count\":0,\"duplicates\":0,\"first_seq\":null,\"last_seq\":null}\n";
    for input in ["", "\n \n\n"] {
        assert_eq!(server.run(&["import", "t", "-"], input).out, empty);
    }
    let missing = server.run(&["import", "t", "/none.ndjson"], "");
    missing.failed_with("/none.ndjson: No such file");
    assert_eq!(missing.code, Some(1));
}

#[test]
fn an_invalid_line_is_reported_and_the_lines_before_it_are_stored() {
    for (above, blank) in [(0, 0u8), (1, 1), (1700, 3), (30_000, 0)] {
        let server = Server::start(&[]);
        let input = format!("{}{}{{\"payload\":}}\n", numbered(above), "\n".repeat(blank.into()));
        let ran = server.run(&["import", "t"], &(input + &numbered(20_000)));
        let bad = above + u64::from(blank) + 1;
        ran.failed_with(&format!("prombus: line {bad}: "));
        assert_eq!((ran.out.as_str(), ran.code), ("", Some(1)));
        match above {
            0 => ran.failed_with("nothing was stored"),
            _ => ran.failed_with(&format!("; {above} events up to line {} are stored", bad - 1)),
        }
        assert_eq!(events(&server), above);
    }
}

#[test]
fn other_invalid_lines() {
    let server = Server::start(&[]);
    let too_large = format!("{{\"payload\":\"{}\"}}\n", "x".repeat(2 << 20));
    let no_event = format!("{{\"payload\":\"{}\"}}\n", "x".repeat(17 << 20));
    for (line, reason) in [
        ("17\n", "line 2: "),
        ("{\"id\":\"x\"}\n", "line 2: "),
        ("{\"payload\":1,\"id\":\"\"}\n", "line 2: "),
        ("{\"payload\":1", "line 2: "),
        (too_large.as_str(), "line 2: "),
        (no_event.as_str(), "line 2: longer than 16777216 bytes"),
    ] {
        let before = events(&server);
        let ran = server.run(&["import", "t"], &format!("{{\"payload\":1}}\n{line}"));
        ran.failed_with(reason);
        ran.failed_with("; 1 events up to line 1 are stored");
        assert_eq!(events(&server), before + 1);
    }
}

/// The server may reject a request before it has read all of it.
#[test]
fn an_invalid_line_is_reported_even_if_much_follows() {
    let server = Server::start(&[]);
    let large = format!("{{\"payload\":\"{}\"}}\n", "x".repeat(8000)).repeat(990);
    for _ in 0..3 {
        let ran = server.run(&["import", "t"], &format!("{{\"payload\":}}\n{large}"));
        ran.failed_with("prombus: line 1: ");
        assert_eq!(events(&server), 0);
    }
}

#[test]
fn resends_after_a_lost_answer_if_each_line_has_an_id() {
    let server = Server::start(&[]);
    let lines: String =
        (1..=400).map(|n| format!("{{\"id\":\"{n}\",\"payload\":{n}}}\n")).collect();
    let proxy = Proxy::start(&server, &[Fate::CutAfter(0), Fate::CutAfter(20)]);
    let ran = proxy.run(&["import", "t"], &lines);
    assert_eq!(ran.lines()[0]["count"], 400);
    assert_eq!(ran.err.matches("resending lines").count(), 2, "{}", ran.err);
    assert_eq!(payloads(&server), (1..=400).map(Value::from).collect::<Vec<_>>());
}

#[test]
fn fails_after_a_lost_answer_if_lines_have_no_id() {
    let server = Server::start(&[]);
    let proxy = Proxy::start(&server, &[Fate::CutAfter(0)]);
    let ran = proxy.run(&["import", "t"], "{\"id\":\"1\",\"payload\":1}\n\n{\"payload\":2}\n");
    ran.failed_with("connection lost: ");
    ran.failed_with("lines 1 to 3 may or may not be stored");
    ran.failed_with("could store them twice");
    assert_eq!((proxy.connections(), ran.code), (1, Some(1)));
    assert_eq!(events(&server), 2);
}

#[test]
fn honors_retry_after() {
    let server = Server::start(&[]);
    let proxy = Proxy::start(&server, &[Fate::Busy]);
    let ran = proxy.run(&["import", "t"], &numbered(3));
    assert_eq!(ran.lines()[0]["count"], 3);
    assert!(ran.err.contains("resending lines 1 to 3 in 1.0 s"), "{}", ran.err);
    assert_eq!(events(&server), 3);
}

#[test]
fn waits_for_the_rate_limit() {
    let limits = ["limits.enabled=true", "limits.connection.capacity=100"];
    let refill = ["limits.connection.refill_per_sec=2000", "limits.topic.capacity=70"];
    let server = Server::start(&[limits, refill].concat());
    let ran = server.run(&["import", "t"], &numbered(1500));
    assert_eq!(ran.lines()[0]["count"], 1500);
    assert_eq!(payloads(&server), (1..=1500).map(Value::from).collect::<Vec<_>>());
}

#[test]
fn ctrl_c_reports_the_progress() {
    let server = Server::start(&[]);
    let mut command = server.command(&["import", "t"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // Lines are stored as they arrive, not only when a request is full.
    stdin.write_all(numbered(3).as_bytes()).unwrap();
    while events(&server) < 3 {
        sleep(Duration::from_millis(5));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    let expected = "prombus: stopped; 3 events up to line 3 are stored; \
                    import the rest of the input with `tail -n +4`\n";
    // If the signal arrives before the answer, it first reports that it waits.
    assert!(stderr.ends_with(expected), "{stderr}");
    drop(stdin);
}
