use std::fs;

use crate::cli::server::Server;
use crate::cli::terminal::{OnTerminal, run_on_terminal};

fn run(server: &Server, arguments: &[&str], typed: &str) -> OnTerminal {
    run_on_terminal(server.command(arguments), typed)
}

#[track_caller]
fn assert_shows(ran: &OnTerminal, text: &str) {
    assert!(ran.screen.contains(text), "{text} is not in {}", ran.screen);
}

#[test]
fn a_mistyped_line_is_reported_and_the_next_ones_are_published() {
    let server = Server::start(&[]);
    let deep = "[".repeat(200) + &"]".repeat(200);
    let ran = run(&server, &["publish", "t"], &format!("1\nnot json\n2\n{deep}\n3\n"));
    assert_shows(&ran, "line 2: the payload is not valid JSON");
    assert_shows(&ran, "line 4: ");
    assert_shows(&ran, "2 lines were not published");
    assert_eq!(ran.code, Some(1));
    let stored = server.run(&["replay", "t"], "").lines();
    let payloads: Vec<_> = stored.iter().map(|event| event["payload"].clone()).collect();
    assert_eq!(payloads, [1, 2, 3]);
    // Without a mistake, it succeeds.
    assert_eq!(run(&server, &["publish", "t"], "4\n").code, Some(0));
}

#[test]
fn tables_show_human_numbers_and_json_shows_exact_ones() {
    let server = Server::start(&[]);
    let lines: String = (1..=1234).map(|n| format!("{n}\n")).collect();
    server.run(&["publish", "t"], &lines).lines();
    let topics = run(&server, &["topics"], "");
    assert_shows(&topics, "1,234");
    assert_shows(&topics, "KiB");
    let exact = run(&server, &["topics", "--json"], "");
    assert_shows(&exact, "\"events\":1234,");
    let set = ["topics", "t", "--retention", "7d", "--retention-bytes", "10MiB"];
    let set = run(&server, &set, "");
    assert_shows(&set, "retention_ms     topic          7d");
    assert_shows(&set, "retention_bytes  topic          10.0 MiB");
    let subscribe = ["subscribe", "t", "--group", "g", "--from", "earliest", "--count", "1"];
    server.run(&subscribe, "").lines();
    let groups = run(&server, &["groups", "t"], "");
    assert_shows(&groups, "1,233");
    assert_shows(&run(&server, &["groups", "--json"], ""), "\"lag_events\":1233,");
}

#[test]
fn imports_and_exports_of_known_size_show_how_much_is_done() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("in"), "{\"payload\":1}\n".repeat(3000)).unwrap();
    let imported = run(&server, &["import", "t", &path("in")], "");
    assert_shows(&imported, "published 3,000 events to t");
    assert_shows(&imported, ", 100%");
    let exported = run(&server, &["export", "t", "--output", &path("out")], "");
    assert_shows(&exported, "exported 3,000 events of t");
    assert_shows(&exported, ", 100%");
    // Where an export ends that ends at a time is not known before.
    let until = ["export", "t", "--to-ts", "now", "--output", &path("until")];
    let exported = run(&server, &until, "");
    assert_shows(&exported, "exported 3,000 events of t");
    assert!(!exported.screen.contains('%'), "{exported:?}");
}
