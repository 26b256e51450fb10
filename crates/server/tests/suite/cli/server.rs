//! Runs servers and commands from the built binary.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::ready::{self, Ready};

pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
    /// The URL of its HTTP API.
    pub(crate) http: String,
}

impl Server {
    /// Starts a server with these settings. Rate limits are off unless enabled.
    pub(crate) fn start(settings: &[&str]) -> Self {
        let mut command = serve();
        command.args(["--engine", "memory"]);
        for setting in settings {
            command.args(["--set", setting]);
        }
        Self::spawn(&mut command)
    }

    /// Starts a server with this configuration file.
    pub(crate) fn configured(file: &Path) -> Self {
        Self::spawn(&mut Self::configured_command(file))
    }

    pub(crate) fn configured_command(file: &Path) -> Command {
        let mut command = serve();
        command.args(["--engine", "memory", "--config"]).arg(file);
        command
    }

    /// Starts a server with the store in `folder`.
    pub(crate) fn on_disk(folder: &Path) -> Self {
        let mut command = serve();
        command.arg("--data").arg(folder);
        Self::spawn(&mut command)
    }

    /// Starts a server with the store in `folder` at the addresses of `self`, which no longer runs.
    pub(crate) fn restarted(&self, folder: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_prombus"));
        command.args(["serve", "--set", "limits.enabled=false", "--set", "log.level=warn"]);
        for (flag, url) in [("--ws", &self.url), ("--http", &self.http)] {
            let (_, address) = url.split_once("://").expect("a URL");
            command.args([flag, address.trim_end_matches('/')]);
        }
        Self::spawn(command.arg("--data").arg(folder))
    }

    /// Ends the process without a chance to finish anything, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("the server is running");
        self.child.wait().expect("the server exits");
    }

    /// Starts a server with the store in `folder`, after a shell has run `limit`.
    pub(crate) fn limited(limit: &str, folder: &Path, settings: &[&str]) -> Self {
        Self::spawn(&mut limited(limit, folder, settings))
    }

    /// Returns `true` while the process runs.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("the state of the child is known").is_none()
    }

    pub(crate) fn spawn(command: &mut Command) -> Self {
        let Ready { child, ws, http, log, .. } = ready::start(command);
        ready::print(log);
        Self { child, url: ws, http }
    }

    /// Starts a server. Returns it with its log.
    pub(crate) fn spawn_with_log(command: &mut Command) -> (Self, ServerLog) {
        let Ready { child, ws, http, earlier, log } = ready::start(command);
        (Self { child, url: ws, http }, ServerLog { earlier, log })
    }

    /// Returns a command that connects to this server.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let uses_websocket = ["publish", "subscribe"].contains(&arguments[0]);
        let mut command = prombus(arguments);
        command.args(["--url", if uses_websocket { &self.url } else { &self.http }]);
        command
    }

    /// Runs a command to its end, with `input` on stdin.
    pub(crate) fn run(&self, arguments: &[&str], input: &str) -> Ran {
        run(self.command(arguments), input)
    }

    /// Waits until the server has stopped.
    pub(crate) fn wait(&mut self) {
        self.child.wait().expect("the server exits");
    }

    /// Sends SIGTERM.
    pub(crate) fn stop(&self) {
        self.signal(Signal::TERM);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the server is running");
    }
}

/// The log of a server.
pub(crate) struct ServerLog {
    earlier: String,
    log: BufReader<ChildStderr>,
}

impl ServerLog {
    /// Returns its lines as the server writes them, until it ends.
    pub(crate) fn lines(self) -> impl Iterator<Item = String> {
        let earlier: Vec<_> = self.earlier.lines().map(str::to_owned).collect();
        earlier.into_iter().chain(self.log.lines().map_while(Result::ok))
    }

    /// Returns all of it, when the server has ended.
    pub(crate) fn into_text(self) -> String {
        let Self { mut earlier, mut log } = self;
        log.read_to_string(&mut earlier).expect("the log is UTF-8");
        earlier
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have stopped already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn serve() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_prombus"));
    command.args(["serve", "--ws", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    command.args(["--set", "limits.enabled=false", "--set", "log.level=warn"]);
    command
}

/// Returns a command that starts a server after a shell has run `limit`, such as `ulimit -n 200`.
pub(crate) fn limited(limit: &str, folder: &Path, settings: &[&str]) -> Command {
    let serve = serve();
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{limit} && exec \"$0\" \"$@\"")]);
    command.arg(serve.get_program()).args(serve.get_args()).arg("--data").arg(folder);
    for setting in settings {
        command.args(["--set", setting]);
    }
    command
}

pub(crate) fn prombus(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_prombus"));
    command.args(arguments);
    for name in ["PROMBUS_TOKEN", "PROMBUS_URL", "PROMBUS_CONTEXT"] {
        command.env_remove(name);
    }
    // The contexts of whoever runs the tests do not apply.
    command.env("XDG_CONFIG_HOME", "/nonexistent");
    command
}

/// The result of a command.
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
            out: String::from_utf8(output.stdout).expect("the output is UTF-8"),
            err: String::from_utf8(output.stderr).expect("the output is UTF-8"),
        }
    }

    /// Asserts success and returns the lines of stdout.
    #[track_caller]
    pub(crate) fn lines(&self) -> Vec<serde_json::Value> {
        assert!(self.is_success, "{self:?}");
        self.json()
    }

    /// Returns the lines of stdout, successful or not.
    #[track_caller]
    pub(crate) fn json(&self) -> Vec<serde_json::Value> {
        self.out
            .lines()
            .map(|line| serde_json::from_str(line).expect("one JSON value per line"))
            .collect()
    }

    /// Asserts that the command failed with this reason on stderr.
    #[track_caller]
    pub(crate) fn failed_with(&self, reason: &str) {
        assert!(!self.is_success && self.err.contains(reason), "{reason} is not in {self:?}");
    }
}

pub(crate) fn run(mut command: Command, input: &str) -> Ran {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary starts");
    let mut stdin = child.stdin.take().expect("stdout is piped");
    let input = input.to_owned();
    // A command that fails early does not read all of its input.
    let writing = std::thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
    let output = child.wait_with_output().expect("the command exits");
    writing.join().expect("the writer does not panic");
    Ran::of(output)
}
