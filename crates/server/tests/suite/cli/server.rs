//! A server from the built binary, and commands that talk to it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
    /// Where its HTTP is.
    pub(crate) http: String,
    /// Kept open: it says goodbye there.
    _out: BufReader<ChildStdout>,
}

impl Server {
    /// Starts one with these settings. Its rate limits are off unless they say otherwise.
    pub(crate) fn start(settings: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_prombus"));
        command.args(["serve", "--engine", "memory", "--ws", "127.0.0.1:0", "--http"]);
        command.args(["127.0.0.1:0", "--set", "limits.enabled=false", "--set", "log.level=warn"]);
        for setting in settings {
            command.args(["--set", setting]);
        }
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the binary starts");
        let mut out = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut said = String::new();
        while !said.contains("ready") {
            assert_ne!(out.read_line(&mut said).expect("it speaks"), 0, "it ended early: {said}");
        }
        let place = |name: &str| {
            let mut lines = said.lines();
            lines.find_map(|line| line.strip_prefix(name)).expect("it says where it is").to_owned()
        };
        Self { child, url: place("WebSocket gateway: "), http: place("HTTP: "), _out: out }
    }

    /// A command that talks to this server.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let is_by_websocket = ["publish", "subscribe"].contains(&arguments[0]);
        let mut command = prombus(arguments);
        command.args(["--url", if is_by_websocket { &self.url } else { &self.http }]);
        command
    }

    /// Runs a command with `input` to its end.
    pub(crate) fn run(&self, arguments: &[&str], input: &str) -> Ran {
        run(self.command(arguments), input)
    }

    /// Asks it to stop.
    pub(crate) fn stop(&self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("it runs");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have been stopped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn prombus(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_prombus"));
    command.args(arguments).env_remove("PROMBUS_TOKEN");
    command
}

/// What came of a command.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) is_success: bool,
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    pub(crate) fn of(output: Output) -> Self {
        Self {
            is_success: output.status.success(),
            code: output.status.code(),
            out: String::from_utf8(output.stdout).expect("it writes text"),
            err: String::from_utf8(output.stderr).expect("it writes text"),
        }
    }

    /// The lines of its output, where it succeeded.
    #[track_caller]
    pub(crate) fn lines(&self) -> Vec<serde_json::Value> {
        assert!(self.is_success, "{self:?}");
        self.json()
    }

    /// The lines of its output, whatever came of it.
    #[track_caller]
    pub(crate) fn json(&self) -> Vec<serde_json::Value> {
        self.out.lines().map(|line| serde_json::from_str(line).expect("JSON a line")).collect()
    }

    /// That it failed, for this reason.
    #[track_caller]
    pub(crate) fn failed_with(&self, reason: &str) {
        assert!(!self.is_success && self.err.contains(reason), "{reason} is not in {self:?}");
    }
}

pub(crate) fn run(mut command: Command, input: &str) -> Ran {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    let input = input.to_owned();
    // One that fails early does not read all of it.
    let writing = std::thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
    let output = child.wait_with_output().expect("it ends");
    writing.join().expect("writing does not panic");
    Ran::of(output)
}
