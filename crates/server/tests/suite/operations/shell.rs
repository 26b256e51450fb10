//! A shell on a machine that runs the server as a service.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

use super::example::Example;

/// Only a command that hangs takes this long.
const HANG_TIMEOUT: Duration = Duration::from_secs(120);
/// Printed when a command has ended.
const END: &str = "=== end of the output ===";

/// A shell in the folder of the service: `prombus.toml`, `prombus.log`, `prombus.pid`, `data`. The scripts in `bin`
/// take the place of `systemctl` and `journalctl`.
pub(super) struct Shell {
    bash: Child,
    commands: ChildStdin,
    lines: Receiver<String>,
    http: String,
    folder: TempDir,
}

impl Shell {
    pub(super) fn start(example: &Example) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let configuration = folder.path().join("prombus.toml");
        std::fs::write(configuration, &example.configuration).expect("the file is written");
        let bin = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/operations/bin");
        let path = std::env::var("PATH").expect("PATH is set");
        let [ws, http] = free_addresses();
        let mut bash = Command::new("bash")
            .current_dir(folder.path())
            .env("PATH", format!("{}:{path}", bin.display()))
            .env("SERVICE", folder.path())
            .env("PROMBUS", env!("CARGO_BIN_EXE_prombus"))
            .env("LIMIT", if example.limit.is_empty() { ":" } else { &example.limit })
            .env("WS_ADDRESS", ws)
            .env("HTTP_ADDRESS", &http)
            .env_remove("PROMBUS_TOKEN")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // What it starts in the background ends with it.
            .process_group(0)
            .spawn()
            .expect("bash starts");
        let commands = bash.stdin.take().expect("stdin is piped");
        let lines = lines_of(bash.stdout.take().expect("stdout is piped"));
        let mut shell = Self { bash, commands, lines, http, folder };
        let started = shell.run("exec 2>&1; systemctl start prombus");
        assert_eq!(started, "", "the server does not start");
        shell
    }

    /// Runs a command. Returns what it prints, without the end of the last line.
    pub(super) fn run(&mut self, command: &str) -> String {
        let command = command.replace("127.0.0.1:8083", &self.http);
        let script = format!("{command}\nprintf '\\n%s\\n' '{END}'\n");
        self.commands.write_all(script.as_bytes()).expect("bash reads");
        let mut printed = String::new();
        loop {
            match self.lines.recv_timeout(HANG_TIMEOUT) {
                Ok(line) if line == END => return printed.trim_end_matches('\n').to_owned(),
                Ok(line) => printed = printed + &line + "\n",
                Err(_) => return printed + "the shell hangs or has ended",
            }
        }
    }

    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("prombus.log")).unwrap_or_default()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.bash), Signal::KILL);
        let _ = self.bash.wait();
    }
}

/// Addresses that nobody listens on.
fn free_addresses() -> [String; 2] {
    // Together, so that they differ.
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    listeners.map(|listener| listener.local_addr().expect("an address").to_string())
}

fn lines_of(out: ChildStdout) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}
