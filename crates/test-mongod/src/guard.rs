//! Ends a server together with the process that started it, however that one ends.
//!
//! The usual test harness has no place to end what its tests share, and a process that is killed drops
//! nothing. So a shell waits beside each server for the end of its input, which comes with the end of
//! the process that holds the other side.

use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Deaf to what ends a whole group of processes, such as ctrl-c: it has its work to do then. A server
/// that is dying may still add a file to its folder.
const WATCH: &str = r#"
trap '' HUP INT TERM
read -r end
kill -KILL "$1"
rm -rf "$2" || { sleep 1; rm -rf "$2"; }
"#;

/// Watches over one server. Dropped, it lets go of it.
pub(crate) struct Guard(Child);

impl Guard {
    pub(crate) fn over(server: &Child, folder: &Path) -> Self {
        let shell = Command::new("sh")
            .args(["-c", WATCH, "guard-of-mongod", &server.id().to_string()])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(shell.expect("there is a shell"))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
