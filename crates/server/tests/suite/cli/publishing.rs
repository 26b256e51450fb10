use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::cli::server::Server;

/// Returns the events of a topic as a new group receives them.
fn stored(server: &Server, topic: &str, count: usize) -> Vec<Value> {
    let count = count.to_string();
    let arguments = ["subscribe", topic, "--group", "all", "--from", "earliest", "--count", &count];
    server.run(&arguments, "").lines()
}

fn seqs(answers: &[Value]) -> Vec<u64> {
    answers.iter().map(|answer| answer["seq"].as_u64().expect("a seq")).collect()
}

#[test]
fn flags_apply_to_every_payload_argument() {
    let server = Server::start(&[]);
    let flags = ["--key", "k", "--ts", "17", "--header", "a=b=c", "--header", "d=", "--tag", "x"];
    let arguments = [&["publish", "t", "{\"n\": 1}", "-2"][..], &flags].concat();
    let answers = server.run(&arguments, "").lines();
    assert_eq!(seqs(&answers), [1, 2]);
    let events = stored(&server, "t", 2);
    for (event, payload) in events.iter().zip([json!({"n": 1}), json!(-2)]) {
        assert_eq!(event["payload"], payload);
        assert_eq!(event["headers"], json!({"a": "b=c", "d": ""}));
        assert_eq!((&event["key"], &event["ts"]), (&json!("k"), &json!(17)));
        assert_eq!(event["tags"], json!(["x"]));
    }
    assert_eq!(events[0]["id"], answers[0]["id"]);
}

#[test]
fn a_repeated_id_is_a_duplicate_and_applies_to_one_event() {
    let server = Server::start(&[]);
    let once = server.run(&["publish", "t", "1", "--id", "a"], "");
    assert_eq!(once.out, "{\"id\":\"a\",\"seq\":1}\n");
    let twice = server.run(&["publish", "t", "2", "--id", "a"], "");
    assert_eq!(twice.out, "{\"id\":\"a\",\"seq\":1,\"duplicate\":true}\n");
    server
        .run(&["publish", "t", "1", "2", "--id", "b"], "")
        .failed_with("--id applies to a single event");
    server.run(&["publish", "t", "--id", "b"], "1\n").failed_with("--id applies to a single event");
}

#[test]
fn lines_keep_their_order_across_frames() {
    let server = Server::start(&[]);
    let input: String = (1..=5000).map(|n| format!("{n}\n")).collect();
    let answers = server.run(&["publish", "t", "--window", "300"], &input).lines();
    assert_eq!(seqs(&answers), (1..=5000).collect::<Vec<_>>());
    let payloads: Vec<_> =
        stored(&server, "t", 5000).iter().map(|e| e["payload"].clone()).collect();
    assert_eq!(payloads, (1..=5000).map(Value::from).collect::<Vec<_>>());
}

#[test]
fn large_payloads_stay_below_the_frame_limit() {
    let server = Server::start(&[]);
    let large = format!("\"{}\"", "x".repeat(400_000));
    let input = format!("{large}\n{large}\n{large}\n{large}\n");
    assert_eq!(seqs(&server.run(&["publish", "t"], &input).lines()), [1, 2, 3, 4]);
    let larger = format!("\"{}\"", "x".repeat(2 << 20));
    let rejected = server.run(&["publish", "t"], &format!("1\n{larger}\n"));
    rejected.failed_with("payload_too_large");
}

#[test]
fn waits_for_the_rate_limit_and_keeps_the_order() {
    let limits = ["limits.enabled=true", "limits.connection.capacity=100"];
    let refill = ["limits.connection.refill_per_sec=500", "limits.topic.capacity=70"];
    let server = Server::start(&[limits, refill].concat());
    let input: String = (1..=400).map(|n| format!("{n}\n")).collect();
    let ran = server.run(&["publish", "t"], &input);
    assert_eq!(seqs(&ran.lines()), (1..=400).collect::<Vec<_>>());
    let payloads: Vec<_> = stored(&server, "t", 400).iter().map(|e| e["payload"].clone()).collect();
    assert_eq!(payloads, (1..=400).map(Value::from).collect::<Vec<_>>());
}

#[test]
fn names_the_limit_it_waits_for_once() {
    let limit = ["limits.connection.capacity=1", "limits.connection.refill_per_sec=1"];
    let server = Server::start(&[&["limits.enabled=true"][..], &limit].concat());
    let ran = server.run(&["publish", "t"], "1\n2\n3\n");
    assert_eq!(seqs(&ran.lines()), [1, 2, 3]);
    let expected = "prombus: waiting for the rate limit: by default 200 events/s per connection \
                    (limits.connection); --no-limits on the server turns limits off\n";
    assert_eq!(ran.err, expected);
}

#[test]
fn an_invalid_line_is_reported_and_the_lines_before_it_are_published() {
    let server = Server::start(&[]);
    let ran = server.run(&["publish", "t"], "1\n\n  \n2\r\n{\"a\":}\n3\n");
    ran.failed_with("line 5: the payload is not valid JSON");
    assert_eq!(seqs(&ran.json()), [1, 2]);
    assert_eq!(seqs(&server.run(&["publish", "t", "4"], "").lines()), [3]);
    let ran = server.run(&["publish", "t", "5", "nope", "6"], "");
    ran.failed_with("payload 2: the payload is not valid JSON");
    assert_eq!(seqs(&ran.json()), [4]);
}

#[test]
fn complete_events_round_trip() {
    let server = Server::start(&[]);
    let event = r#"{"seq":9,"id":"é-1","ts":5,"topic":"other","key":"k","headers":{"b":"1","a":"2"},"payload":{"x":1e400, "y":[]},"caused_by":["c"],"tags":["t"],"sid":"s"}"#;
    let input = format!("{event}\n{{\"payload\":null,\"id\":null,\"tags\":null}}\n");
    assert_eq!(seqs(&server.run(&["publish", "t", "--events"], &input).lines()), [1, 2]);
    let out =
        server.run(&["subscribe", "t", "--group", "g", "--from", "earliest", "--count", "2"], "");
    let expected = event.replace("\"seq\":9", "\"seq\":1").replace("\"other\"", "\"t\"");
    assert_eq!(out.out.lines().next(), Some(expected.as_str()));
    server
        .run(&["publish", "t", "--events"], "{\"id\":\"x\"}\n")
        .failed_with("line 1: not an event");
    server.run(&["publish", "t", "--events", "--key", "k"], "").failed_with("--key");
}

#[test]
fn publishes_slow_input_as_it_arrives() {
    let server = Server::start(&[]);
    let mut command = server.command(&["publish", "t"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
    for seq in 1..=3 {
        writeln!(stdin, "{seq}").unwrap();
        let answer: Value = serde_json::from_str(&out.next().unwrap().unwrap()).unwrap();
        assert_eq!(answer["seq"], seq);
    }
    // A server shutdown is noticed while there is nothing to publish.
    server.stop();
    assert!(!child.wait().unwrap().success());
}
