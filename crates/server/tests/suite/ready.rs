//! Starts the built binary and waits until it says where it listens, in its JSON log.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStderr, Command, Stdio};

use serde_json::Value;

/// A server that is ready.
pub(crate) struct Ready {
    pub(crate) child: Child,
    /// The URL of the WebSocket gateway, such as `ws://127.0.0.1:8090/`.
    pub(crate) ws: String,
    /// The URL of the HTTP port, such as `http://127.0.0.1:8083`.
    pub(crate) http: String,
    /// What it logged before.
    pub(crate) earlier: String,
    /// What it logs from now on. Must be read: a server that nobody reads blocks in the end.
    pub(crate) log: BufReader<ChildStderr>,
}

pub(crate) fn start(command: &mut Command) -> Ready {
    #[allow(
        clippy::zombie_processes,
        reason = "whoever gets it ends it, and a failure ends the test"
    )]
    let mut child = command.stderr(Stdio::piped()).spawn().expect("the binary starts");
    let mut log = BufReader::new(child.stderr.take().expect("stderr is piped"));
    let mut earlier = String::new();
    loop {
        let mut line = String::new();
        let read = log.read_line(&mut line).expect("the log is UTF-8");
        assert_ne!(read, 0, "the server exited early: {earlier}");
        let fields: Value = serde_json::from_str(&line).unwrap_or_default();
        if fields["message"] == "ready" {
            let url = |name: &str| fields[name].as_str().expect("an address").to_owned();
            return Ready { child, ws: url("ws"), http: url("http"), earlier, log };
        }
        earlier += &line;
    }
}

/// Prints what `log` has to say until its process ends.
pub(crate) fn print(log: BufReader<ChildStderr>) {
    std::thread::spawn(move || {
        log.lines().map_while(Result::ok).for_each(|line| eprintln!("{line}"));
    });
}
