//! Kills a server when the process that started it exits, for whatever reason.
//!
//! The default test harness has no hook to stop what its tests share, and a killed process drops
//! nothing. So a shell beside each server waits for the end of its input, which comes when the
//! process that holds the other end of the pipe exits.

use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Ignores the signals that stop a whole process group, such as ctrl-c, because that is when it is
/// needed. A dying server may still add a file to its folder, so the removal is tried twice.
const WATCH: &str = r#"
trap '' HUP INT TERM
read -r end
kill -KILL "$1"
rm -rf "$2" || { sleep 1; rm -rf "$2"; }
"#;

/// Guards one server until it is dropped.
pub(crate) struct Guard(Child);

impl Guard {
    pub(crate) fn new(server: &Child, folder: &Path) -> Self {
        let shell = Command::new("sh")
            .args(["-c", WATCH, "guard-of-mongod", &server.id().to_string()])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(shell.expect("sh starts"))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
