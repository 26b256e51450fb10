use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use prombus_test_mongod::{Kind, Mongod, new_database};
use serde_json::Value;

use crate::cli::server::{Ran, Server, prombus, run};

fn doctor(arguments: &[&str]) -> Ran {
    run(prombus(&[&["doctor", "--set", "server.http=127.0.0.1:1"], arguments].concat()), "")
}

fn doctor_of(folder: &Path, arguments: &[&str]) -> Ran {
    doctor(&[&["--data", folder.to_str().expect("the path is UTF-8")], arguments].concat())
}

#[track_caller]
fn assert_says(ran: &Ran, part: &str) {
    assert!(ran.out.contains(part), "{part} is not in {ran:?}");
}

#[test]
fn a_new_installation_is_fine() {
    let folder = tempfile::tempdir().unwrap();
    let ran = doctor_of(&folder.path().join("new"), &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_says(&ran, "does not exist yet; a start creates it");
    assert_says(&ran, "no server runs at http://127.0.0.1:1");
    assert_says(&ran, "0 problems");
    assert!(!folder.path().join("new").exists(), "it changes nothing");
}

#[test]
fn findings_are_json_too() {
    let folder = tempfile::tempdir().unwrap();
    let ran = doctor_of(folder.path(), &["--json", "--set", "limits.enabled=false"]);
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(report["problems"], 0, "{report}");
    let findings = report["findings"].as_array().unwrap();
    let about_limits = |finding: &&Value| finding["message"].as_str().unwrap().contains("limits");
    let finding = findings.iter().find(|f| about_limits(f) && f["area"] == "config").unwrap();
    assert_eq!((&finding["level"], finding["advice"].is_string()), (&"warning".into(), true));
}

#[test]
fn an_invalid_or_readable_configuration_is_a_problem() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("prombus.toml");
    let path = file.to_str().unwrap();
    fs::write(&file, "[limits]\nenbaled = true\n").unwrap();
    let ran = doctor(&["--config", path]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert_says(&ran, "unknown setting limits.enbaled");
    assert_says(&ran, "did you mean limits.enabled?");
    fs::write(&file, "auth.tokens = [{token = \"hunter2\", scopes = [\"admin\"]}]\n").unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    let ran = doctor_of(folder.path(), &["--config", path]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert_says(&ran, "contains secrets, and other users of this machine can read it");
    assert_says(&ran, &format!("-> run `chmod go= {path}`"));
    assert!(!ran.out.contains("hunter2"), "{ran:?}");
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    assert_eq!(doctor_of(folder.path(), &["--config", path]).code, Some(0));
    assert_says(&doctor(&["--config", "/nonexistent.toml"]), "PROBLEM  config");
}

#[test]
fn the_store_of_a_running_server_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let server = Server::on_disk(&store);
    server.run(&["publish", "t", "1"], "").lines();
    let ran = doctor_of(&store, &["--url", &server.http]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_says(&ran, "is in use by a running process");
    assert_says(&ran, "is ready");
    assert_says(&ran, "the clock of the server agrees with this one");
    assert_says(&ran, &format!("the server has version {}", env!("CARGO_PKG_VERSION")));
    server.run(&["publish", "t", "2"], "").lines();
    drop(server);
    let ran = doctor_of(&store, &[]);
    assert_says(&ran, "is not in use");
    // A start is still possible.
    drop(Server::on_disk(&store));
}

#[test]
fn damage_and_access_of_others_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    drop(Server::on_disk(&store));
    fs::set_permissions(&store, Permissions::from_mode(0o755)).unwrap();
    fs::create_dir_all(store.join("quarantine")).unwrap();
    fs::write(store.join("quarantine/3.wal"), "damaged").unwrap();
    let ran = doctor_of(&store, &[]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert_says(&ran, "1 damaged files are in ");
    assert_says(&ran, "other users of this machine have access to ");
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    assert_says(&doctor_of(&file, &[]), "is not a folder");
}

#[test]
fn a_server_that_is_named_has_to_answer() {
    let folder = tempfile::tempdir().unwrap();
    let ran = doctor_of(folder.path(), &["--url", "http://127.0.0.1:1"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert_says(&ran, "cannot connect to http://127.0.0.1:1");
    let server = Server::start(&[]);
    let gateway = server.url.replace("ws:", "http:");
    let ran = doctor_of(folder.path(), &["--url", &gateway]);
    assert_says(&ran, "pass its HTTP address as --url");
}

#[test]
fn a_low_limit_of_open_files_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let command = prombus(&["doctor", "--data", folder.path().to_str().unwrap()]);
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", "ulimit -n 512 && ulimit -f 1024 && exec \"$0\" \"$@\""]);
    limited.arg(command.get_program()).args(command.get_args());
    limited.env("XDG_CONFIG_HOME", "/nonexistent");
    let ran = run(limited, "");
    assert_says(&ran, "512 open files leave room for");
    assert_says(&ran, "(ulimit -f)");
}

#[test]
fn mongodb_is_asked_for_its_topology_and_indexes() {
    let server = Mongod::start_on_thread(Kind::ReplicaSet);
    let address = server.url().replacen("/?", &format!("/{}?", new_database()), 1);
    let ran = doctor(&["--engine", &address]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_says(&ran, "is a replica set with 1 members that hold data");
    assert_says(&ran, "is new; the first start of a server sets it up");
    assert_says(&ran, "the clock of the database agrees");
    let ran = doctor(&[
        "--engine",
        "mongodb://nobody:hunter2@127.0.0.1:1/p?serverSelectionTimeoutMS=100",
    ]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert_says(&ran, "check the address, the network, the user and its rights");
    assert!(!ran.out.contains("hunter2"), "{ran:?}");
}
