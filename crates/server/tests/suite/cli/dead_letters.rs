//! `prombus dlq`.

use serde_json::{Value, json};

use crate::cli::server::Server;
use crate::cli::terminal::run_on_terminal;

/// Starts a server with the events `e1` to `e{count}`, which these groups rejected.
fn started(count: usize, groups: &[&str]) -> Server {
    let server = Server::start(&[]);
    let events: String =
        (1..=count).map(|n| format!("{{\"id\": \"e{n}\", \"payload\": {n}.50}}\n")).collect();
    server.run(&["import", "t"], &events).lines();
    let count = count.to_string();
    for group in groups {
        let reject = ["subscribe", "t", "--group", group, "--from", "earliest", "--count", &count];
        let ran = server.run(&[&reject[..], &["--exec", "exit 65"]].concat(), "");
        assert!(ran.is_success, "{ran:?}");
    }
    server
}

fn listed(server: &Server, more: &[&str]) -> Vec<String> {
    let letters = server.run(&[&["dlq", "list", "t"], more].concat(), "").lines();
    let named = letters.iter().map(|letter| {
        let part = |name: &str| letter[name].as_str().expect("text").to_owned();
        format!("{}/{}", part("group"), part("original_id"))
    });
    named.collect()
}

#[test]
fn lists_and_shows_letters() {
    let server = started(2, &["g", "h"]);
    assert_eq!(listed(&server, &[]), ["g/e1", "g/e2", "h/e1", "h/e2"]);
    assert_eq!(listed(&server, &["--group", "h"]), ["h/e1", "h/e2"]);
    assert_eq!(listed(&server, &["--limit", "3"]), ["g/e1", "g/e2", "h/e1"]);
    let letters = server.run(&["dlq", "list", "t"], "").lines();
    assert_eq!(letters[0]["err"], "the command rejected the event: exit status: 65");
    assert_eq!(letters[0]["redriven"], false);

    let shown = server.run(&["dlq", "show", "t", "e2"], "").lines();
    assert_eq!(shown, [letters[1].clone(), letters[3].clone()]);
    let one = server.run(&["dlq", "show", "t", "e2", "--group", "h"], "");
    assert!(one.out.contains("\"payload\":2.50"), "{one:?}");
    assert_eq!(one.lines(), [letters[3].clone()]);
    let id = letters[1]["id"].as_str().unwrap();
    assert_eq!(server.run(&["dlq", "show", "t", id], "").lines(), [letters[1].clone()]);

    let missing = server.run(&["dlq", "show", "t", "e9"], "");
    missing.failed_with("t has no dead letter of the event e9");
    server.run(&["dlq", "list", "nothing"], "").failed_with("unknown_topic: ");
    assert_eq!(server.run(&["dlq", "list", "t", "--limit", "0"], "").code, Some(2));
    assert_eq!(server.run(&["dlq"], "").code, Some(2));
}

#[test]
fn follows_the_pages_to_the_end() {
    let server = started(1100, &["g"]);
    let all = listed(&server, &[]);
    assert_eq!((all.len(), all[1099].as_str()), (1100, "g/e1100"));
    assert_eq!(listed(&server, &["--limit", "1050"]).len(), 1050);
    let redriven = server.run(&["dlq", "redrive", "t"], "").lines();
    assert_eq!(redriven, [json!({"topic": "t", "redriven": 1100, "skipped": 0})]);
    let dropped = server.run(&["dlq", "drop", "t", "--all"], "").lines();
    assert_eq!(dropped, [json!({"topic": "t", "dropped": 1100})]);
}

#[test]
fn redrives_letters_to_the_group_that_failed() {
    let server = started(3, &["g", "h"]);
    let redrive = |more: &[&str]| server.run(&[&["dlq", "redrive", "t"], more].concat(), "");
    let totals = |redriven: u64, skipped: u64| json!({"topic": "t", "redriven": redriven, "skipped": skipped});
    let two = ["--id", "e1", "--id", "e3", "--group", "h"];
    assert_eq!(redrive(&two).lines(), [totals(2, 0)]);
    assert_eq!(redrive(&two).lines(), [totals(0, 2)]);
    let subscribe = ["subscribe", "t", "--group", "h", "--count", "2"];
    let events = server.run(&subscribe, "").lines();
    assert_eq!(events.iter().map(|event| &event["id"]).collect::<Vec<_>>(), ["e1", "e3"]);
    assert_eq!(server.run(&["groups", "show", "t", "g"], "").lines()[0]["redriving"], 0);
    assert_eq!(redrive(&[]).lines(), [totals(4, 2)]);
    redrive(&["--id", "e9"]).failed_with("t has no dead letter of the event e9");
    server.run(&["dlq", "redrive", "nothing"], "").failed_with("unknown_topic: ");
}

#[test]
fn drops_letters() {
    let server = started(3, &["g", "h"]);
    let drop = |more: &[&str]| server.run(&[&["dlq", "drop", "t"], more].concat(), "");
    for unclear in [&[][..], &["--all", "--group", "g"], &["--all", "--id", "e1"]] {
        assert_eq!(drop(unclear).code, Some(2), "{unclear:?}");
    }
    assert_eq!(drop(&["--id", "e1"]).lines(), [json!({"topic": "t", "dropped": 2})]);
    assert_eq!(listed(&server, &[]), ["g/e2", "g/e3", "h/e2", "h/e3"]);
    assert_eq!(drop(&["--group", "g"]).lines()[0]["dropped"], 2);
    assert_eq!(drop(&["--all"]).lines()[0]["dropped"], 2);
    assert_eq!(listed(&server, &[]), Vec::<String>::new());
    drop(&["--id", "e1"]).failed_with("t has no dead letter of the event e1");
}

#[test]
fn a_terminal_shows_text() {
    let server = started(2, &["g"]);
    for (arguments, texts) in [
        (
            &["dlq", "list", "t"][..],
            &["AGE", "REDRIVEN", "e2", "the command rejected the event: exit status: 65"][..],
        ),
        (&["dlq", "list", "t", "--json"], &["\"original_id\":\"e2\""]),
        (&["dlq", "show", "t", "e1"], &["id of the event    e1", "  \"payload\": 1.50"]),
        (&["dlq", "redrive", "t"], &["redrove 2 dead letters of t\r\n"]),
        (&["dlq", "redrive", "t"], &["redrove 0 dead letters of t, skipped 2"]),
        (&["dlq", "list", "t"], &["yes"]),
        (&["dlq", "drop", "t", "--all"], &["dropped 2 dead letters of t"]),
    ] {
        let shown = run_on_terminal(server.command(arguments), "");
        assert_eq!(shown.code, Some(0), "{shown:?}");
        for text in texts {
            assert!(shown.screen.contains(text), "{text} is not in {}", shown.screen);
        }
    }
}

#[test]
fn redriving_and_dropping_need_the_right_to_manage() {
    let server = Server::start(&[
        "auth.tokens=[{token = \"user\", scopes = [\"publish:t\", \"subscribe:t\"]}]",
    ]);
    let run = |arguments: &[&str]| server.run(&[arguments, &["--token", "user"]].concat(), "");
    run(&["publish", "t", "1"]).lines();
    assert_eq!(run(&["dlq", "list", "t"]).lines(), Vec::<Value>::new());
    run(&["dlq", "redrive", "t"]).failed_with("forbidden: ");
    run(&["dlq", "drop", "t", "--all"]).failed_with("forbidden: ");
}
