//! The built binary, as a new user runs it.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::ready::{self, Ready};

/// On free ports: the default ones may be in use.
fn prombus() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_prombus"));
    command.env("PROMBUS_SERVER_WS", "127.0.0.1:0").env("PROMBUS_SERVER_HTTP", "127.0.0.1:0");
    command.env("PROMBUS_LOG_FORMAT", "text");
    command
}

/// Starts the binary and waits until it is ready. Returns what it printed.
fn started(arguments: &[&str], folder: &Path) -> (Child, BufReader<impl Read>, String) {
    let mut child = prombus()
        .args(arguments)
        .current_dir(folder)
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut out = BufReader::new(child.stderr.take().expect("the output is piped"));
    let mut printed = String::new();
    while !printed.contains("ctrl-c") {
        let read = out.read_line(&mut printed).expect("stderr is readable");
        assert_ne!(read, 0, "the server exited early: {printed}");
    }
    (child, out, printed)
}

fn stop(mut child: Child, mut out: impl Read, signal: Signal) -> String {
    let pid = Pid::from_child(&child);
    kill_process(pid, signal).expect("the process runs");
    let mut printed = String::new();
    out.read_to_string(&mut printed).expect("stderr is readable");
    assert!(child.wait().expect("the process exits").success());
    printed
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn without_arguments_it_opens_and_closes_a_store() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [&[][..], &["serve", "--engine", "disk"]] {
        let (child, out, printed) = started(arguments, folder.path());
        assert!(printed.contains("opened the store in ./prombus-data"), "{printed}");
        assert!(printed.contains("0 topics, 0 events"), "{printed}");
        assert!(printed.contains("WebSocket gateway: ws://127.0.0.1:"), "{printed}");
        assert!(printed.contains("HTTP: http://127.0.0.1:"), "{printed}");
        assert!(folder.path().join("prombus-data/catalog").exists());
        assert!(stop(child, out, Signal::TERM).contains("everything is stored"));
    }
}

#[test]
fn prints_the_limits_in_force() {
    let folder = tempfile::tempdir().unwrap();
    for (argument, limits) in [
        (
            "--set=limits.topic.capacity=5",
            "limits: 200/s and 64.0 MiB/s per connection, 4000/s per client, \
             1000/s (burst 5) per topic; 100000 topics, 1000 groups per topic\n",
        ),
        ("--no-limits", "limits: none\n"),
    ] {
        let arguments = ["--engine", "memory", argument];
        let (child, out, printed) = started(&arguments, folder.path());
        assert!(printed.contains(limits), "{printed}");
        stop(child, out, Signal::TERM);
    }
}

/// Programs that start the server read where it listens from its log, whatever the level.
#[test]
fn the_banner_is_a_log_line_where_the_log_is_json() {
    let folder = tempfile::tempdir().unwrap();
    for format in ["json", "auto"] {
        let mut command = prombus();
        command.env("PROMBUS_LOG_FORMAT", format).env("PROMBUS_LOG_LEVEL", "off");
        command.args(["--engine", "memory"]).current_dir(folder.path()).stdout(Stdio::piped());
        let Ready { child, ws, http, earlier, mut log } = ready::start(&mut command);
        assert!(ws.starts_with("ws://127.0.0.1:") && http.starts_with("http://127.0.0.1:"));
        assert_eq!(earlier, "");
        kill_process(Pid::from_child(&child), Signal::TERM).expect("the process runs");
        let mut rest = String::new();
        log.read_to_string(&mut rest).unwrap();
        let last: serde_json::Value = serde_json::from_str(&rest).expect("one line of JSON");
        assert_eq!(last["message"], "stopped; everything is stored");
        assert_eq!((&last["level"], &last["target"]), (&"INFO".into(), &"lifecycle".into()));
        let output = child.wait_with_output().expect("the process exits");
        assert!(output.status.success() && output.stdout.is_empty(), "stdout is not used");
    }
}

#[test]
fn in_memory_it_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let (child, out, printed) = started(&["--engine", "memory"], folder.path());
    assert!(printed.contains("an in-memory store"), "{printed}");
    stop(child, out, Signal::INT);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn serves_connections_on_the_configured_number_of_threads() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = prombus();
    command.args(["--set", "server.threads=3", "--set", "log.level=debug"]);
    let mut child = command
        .current_dir(folder.path())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let log = BufReader::new(child.stderr.take().expect("the output is piped"));
    let line = log.lines().map(Result::unwrap).find(|line| line.contains("serving connections"));
    kill_process(Pid::from_child(&child), Signal::KILL).expect("the process runs");
    child.wait().expect("the process exits");
    assert!(line.as_ref().is_some_and(|line| line.contains("on 3 threads")), "{line:?}");
}

#[test]
fn a_second_server_on_the_same_folder_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let (child, out, _) = started(&["--data", "shared"], folder.path());
    let second = prombus().args(["--data", "shared"]).current_dir(folder.path()).output().unwrap();
    assert!(!second.status.success());
    assert!(text(&second).contains("shared is in use by another process"), "{}", text(&second));
    stop(child, out, Signal::TERM);
}

#[test]
fn an_unknown_option_is_an_error() {
    let unknown = prombus().arg("--nonsense").output().unwrap();
    assert!(!unknown.status.success());
    assert!(text(&unknown).contains("--nonsense"), "{}", text(&unknown));
    let help = prombus().arg("--help").output().unwrap();
    assert!(help.status.success());
    assert!(String::from_utf8_lossy(&help.stdout).contains("--data <DIR>"));
}

#[test]
fn prints_the_effective_settings_with_their_sources() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("own.toml"), "[log]\nlevel = \"warn\"\n").unwrap();
    let output = prombus()
        .args(["serve", "--config", "own.toml", "--set", "limits.connection.capacity=500"])
        .args(["--ws", "0.0.0.0:0", "--insecure", "--start-damaged", "--print-config"])
        .env("PROMBUS_AUTH_JWT_SECRET", "hunter2")
        .env_remove("PROMBUS_SERVER_HTTP") // leaves one setting at its default
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let printed = String::from_utf8(output.stdout).unwrap();
    for line in [
        "level = \"warn\" # own.toml, line 2",
        "secret = \"<redacted>\" # environment variable PROMBUS_AUTH_JWT_SECRET",
        "capacity = 500 # --set limits.connection.capacity",
        "ws = \"0.0.0.0:0\" # --ws",
        "insecure = true # --insecure",
        "start_damaged = true # --start-damaged",
        "engine = \"disk\"",
    ] {
        assert!(printed.lines().any(|printed| printed == line), "{line} is not in\n{printed}");
    }
    assert!(!folder.path().join("prombus-data").exists(), "nothing is created");
}

#[test]
fn an_invalid_setting_prevents_the_start() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, reason) in [
        (["--ws", "0.0.0.0:0"], "server.ws (--ws) is 0.0.0.0:0, which other machines can reach"),
        (
            ["--engine", "mongodb:db"],
            "server.engine (--engine) must be a MongoDB connection string",
        ),
        (["--set", "ws=1"], "unknown setting ws (--set ws); did you mean server.ws?"),
    ] {
        let output = prombus().args(arguments).current_dir(folder.path()).output().unwrap();
        assert!(!output.status.success());
        assert!(text(&output).starts_with(&format!("prombus: {reason}")), "{}", text(&output));
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
