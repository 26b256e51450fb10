//! `prombus --engine mongodb://…` and `prombus migrate`: start-up errors and migrations.

use std::io::Read;
use std::process::{Command, Output};

use prombus_test_mongod::{Kind, Mongod, new_database};
use rustix::process::{Pid, Signal, kill_process};

use crate::ready::{self, Ready};

const PASSWORD: &str = "very-secret-indeed";

fn prombus(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_prombus"));
    command.args(arguments);
    command.env("PROMBUS_SERVER_WS", "127.0.0.1:0").env("PROMBUS_SERVER_HTTP", "127.0.0.1:0");
    command
}

fn started(kind: Kind) -> Mongod {
    Mongod::start_on_thread(kind)
}

/// Returns the address with a new database name.
fn address(url: &str) -> String {
    url.replacen("/?", &format!("/{}?", new_database()), 1)
}

fn all_of(output: &Output) -> String {
    let printed = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8(printed).expect("the output is UTF-8")
}

/// Asserts that both commands fail with these reasons and print no secret.
fn assert_rejected(address: &str, reasons: &[&str]) {
    for command in ["serve", "migrate"] {
        let output = prombus(&[command, "--engine", address]).output().expect("the binary runs");
        let printed = all_of(&output);
        assert_eq!(output.status.code(), Some(1), "{printed}");
        let last = printed.lines().last().expect("an error is printed");
        assert!(last.starts_with("prombus: mongodb://"), "{printed}");
        for reason in reasons {
            assert!(last.contains(reason), "{command}: {reason} is not in {printed}");
        }
        assert!(!printed.contains(PASSWORD), "{printed}");
    }
}

/// Starts the server, stops it once it is ready, and returns its output.
fn serve_once(address: &str) -> String {
    let started = ready::start(&mut prombus(&["serve", "--engine", address]));
    let Ready { mut child, earlier: mut printed, mut log, .. } = started;
    let _ = kill_process(Pid::from_child(&child), Signal::TERM);
    log.read_to_string(&mut printed).expect("the log is UTF-8");
    assert!(child.wait().expect("the server exits").success(), "{printed}");
    printed
}

fn migrate(address: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = prombus(&["migrate", "--engine", address])
        .args(arguments)
        .output()
        .expect("the binary runs");
    let text = |bytes| String::from_utf8(bytes).expect("the output is UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn an_unreachable_server_says_what_to_check() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let address =
        format!("mongodb://bus:{PASSWORD}@127.0.0.1:{port}/x?serverSelectionTimeoutMS=300");
    assert_rejected(&address, &["no primary found", "majority of the replica set is up"]);
}

#[test]
fn a_wrong_password_is_reported_but_not_printed() {
    let server = started(Kind::ReplicaSetWithUsers);
    server.add_user("bus", "another-one");
    let url = address(&server.url());
    let url = url.replace("mongodb://", &format!("mongodb://bus:{PASSWORD}@"));
    assert_rejected(&format!("{url}&authSource=admin"), &["authentication failed", "authSource="]);
    // So is a missing one.
    assert_rejected(&address(&server.url()), &["authentication failed", "requires authentication"]);
}

#[test]
fn an_uninitiated_replica_set_says_how_to_initiate_it() {
    let server = started(Kind::Uninitiated);
    assert_rejected(&address(&server.direct_url()), &["rs.initiate()"]);
}

#[test]
fn a_standalone_server_works_with_a_warning() {
    let server = started(Kind::Standalone);
    let address = address(&server.url());
    let (code, _, printed) = migrate(&address, &[]);
    assert_eq!(code, Some(3));
    assert!(printed.contains("not a replica set: stop its gateway"), "{printed}");
    let printed = serve_once(&address);
    assert!(printed.contains("only one gateway may use it"), "{printed}");
}

#[test]
fn a_migration_is_planned_applied_and_verified() {
    let server = started(Kind::ReplicaSet);
    let address = address(&server.url());
    let keep = ["--set", r#"topics."orders.created".retention_ms=604800000"#];
    let (code, plan, _) = migrate(&address, &keep);
    assert_eq!(code, Some(3), "{plan}");
    assert!(plan.contains("build the index events (topic, seq) unique"), "{plan}");
    assert!(plan.contains("keep the events of orders.created for 604800000 ms"), "{plan}");
    assert!(plan.contains("nothing was changed; run again with --apply to migrate"), "{plan}");

    let (code, plan, _) = migrate(&address, &[&keep[..], &["--json"]].concat());
    assert_eq!(code, Some(3));
    let plan: serde_json::Value = serde_json::from_str(&plan).expect("JSON");
    let steps = plan["steps"].as_array().expect("steps");
    assert_eq!(plan["layout"], serde_json::Value::Null);
    assert_eq!(steps.last().expect("some")["to_ms"], 604_800_000);

    let (code, done, printed) = migrate(&address, &[&keep[..], &["--apply"]].concat());
    assert_eq!(code, Some(0), "{done}{printed}");
    assert!(printed.contains("migrated and verified: nothing left to do"), "{printed}");
    let (code, plan, _) = migrate(&address, &keep);
    assert_eq!(code, Some(0));
    assert!(plan.contains("is up to date"), "{plan}");
    // The server accepts the migrated database. Removing the setting reverts the retention.
    serve_once(&address);
    let (code, plan, _) = migrate(&address, &[]);
    assert_eq!(code, Some(3));
    assert!(plan.contains("keep the events of orders.created for ever"), "{plan}");
}

#[test]
fn other_engines_need_no_migration() {
    for engine in ["disk", "memory"] {
        let (code, _, printed) = migrate(engine, &[]);
        assert_eq!(code, Some(1));
        assert!(printed.contains("--engine mongodb://"), "{printed}");
    }
}
