//! `prombus --engine mongodb://…` and `prombus migrate`, as whoever runs them meets what is wrong.

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use prombus_test_mongod::{Kind, Mongod, new_database};
use rustix::process::{Pid, Signal, kill_process};

const PASSWORD: &str = "very-secret-indeed";

fn prombus(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_prombus"));
    command.args(arguments);
    command.env("PROMBUS_SERVER_WS", "127.0.0.1:0").env("PROMBUS_SERVER_HTTP", "127.0.0.1:0");
    command
}

fn started(kind: Kind) -> Mongod {
    Mongod::start_on_its_own_thread(kind)
}

/// In a database of its own.
fn address(url: &str) -> String {
    url.replacen("/?", &format!("/{}?", new_database()), 1)
}

fn all_of(output: &Output) -> String {
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8(said).expect("it writes text")
}

/// Both ways to use a database end with this, and do not tell what is secret.
fn refused(address: &str, reasons: &[&str]) {
    for command in ["serve", "migrate"] {
        let output = prombus(&[command, "--engine", address]).output().expect("it runs");
        let said = all_of(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        let last = said.lines().last().expect("it says something");
        assert!(last.starts_with("prombus: mongodb://"), "{said}");
        for reason in reasons {
            assert!(last.contains(reason), "{command}: {reason} is not in {said}");
        }
        assert!(!said.contains(PASSWORD), "{said}");
    }
}

/// Starts, says what it says before it is ready, and ends.
fn served(address: &str) -> String {
    let mut child = prombus(&["serve", "--engine", address])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut out = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut line = String::new();
    while !line.contains("ready") {
        line.clear();
        if out.read_line(&mut line).expect("it speaks") == 0 {
            break;
        }
    }
    let _ = kill_process(Pid::from_child(&child), Signal::TERM);
    let rest = child.wait_with_output().expect("it ends");
    let said = all_of(&rest);
    assert!(rest.status.success(), "{said}");
    said
}

fn migrate(address: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output =
        prombus(&["migrate", "--engine", address]).args(arguments).output().expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("it writes text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn where_there_is_no_server_it_says_what_to_check() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let address =
        format!("mongodb://bus:{PASSWORD}@127.0.0.1:{port}/x?serverSelectionTimeoutMS=300");
    refused(&address, &["no primary found", "majority of the replica set is up"]);
}

#[test]
fn a_wrong_password_is_named_as_such_and_not_shown() {
    let server = started(Kind::ReplicaSetWithUsers);
    server.add_user("bus", "another-one");
    let url = address(&server.url());
    let url = url.replace("mongodb://", &format!("mongodb://bus:{PASSWORD}@"));
    refused(&format!("{url}&authSource=admin"), &["authentication failed", "authSource="]);
    // Nor is it where nobody said who it is.
    refused(&address(&server.url()), &["authentication failed", "requires authentication"]);
}

#[test]
fn a_replica_set_that_was_never_initiated_says_how_to() {
    let server = started(Kind::Uninitiated);
    refused(&address(&server.direct_url()), &["rs.initiate()"]);
}

#[test]
fn a_single_server_is_warned_of_and_used() {
    let server = started(Kind::Standalone);
    let address = address(&server.url());
    let (code, _, said) = migrate(&address, &[]);
    assert_eq!(code, Some(3));
    assert!(said.contains("no replica set: stop its gateway"), "{said}");
    let said = served(&address);
    assert!(said.contains("only one gateway may use it"), "{said}");
}

#[test]
fn a_migration_is_planned_done_and_checked() {
    let server = started(Kind::ReplicaSet);
    let address = address(&server.url());
    let keep = ["--set", r#"topics."orders.created".retention_ms=604800000"#];
    let (code, plan, _) = migrate(&address, &keep);
    assert_eq!(code, Some(3), "{plan}");
    assert!(plan.contains("build the index events (topic, seq) unique"), "{plan}");
    assert!(plan.contains("let orders.created keep events for 604800000 ms"), "{plan}");
    assert!(plan.contains("nothing was changed; prombus migrate --apply does it"), "{plan}");

    let (code, plan, _) = migrate(&address, &[&keep[..], &["--json"]].concat());
    assert_eq!(code, Some(3));
    let plan: serde_json::Value = serde_json::from_str(&plan).expect("JSON");
    let steps = plan["steps"].as_array().expect("steps");
    assert_eq!(plan["layout"], serde_json::Value::Null);
    assert_eq!(steps.last().expect("some")["to_ms"], 604_800_000);

    let (code, done, said) = migrate(&address, &[&keep[..], &["--apply"]].concat());
    assert_eq!(code, Some(0), "{done}{said}");
    assert!(said.contains("done, and everything is as it has to be"), "{said}");
    let (code, plan, _) = migrate(&address, &keep);
    assert_eq!(code, Some(0));
    assert!(plan.contains("is as it has to be"), "{plan}");
    // It is used as it is, and what nobody configures any more is taken back.
    served(&address);
    let (code, plan, _) = migrate(&address, &[]);
    assert_eq!(code, Some(3));
    assert!(plan.contains("let orders.created keep its events for ever"), "{plan}");
}

#[test]
fn what_is_no_database_is_not_migrated() {
    for engine in ["disk", "memory"] {
        let (code, _, said) = migrate(engine, &[]);
        assert_eq!(code, Some(1));
        assert!(said.contains("--engine mongodb://"), "{said}");
    }
}
