//! The built binary as the target of the attack, its health and its memory.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tempfile::TempDir;

use crate::ready::{self, Ready};

/// The token of the well-behaved client.
pub(super) const WELL_BEHAVED: &str = "the token of the well-behaved client";
/// A token that attackers share. It may also read the topic of the well-behaved client.
pub(super) const ATTACKER: &str = "the token that all attackers share";

const TOKENS: &str = r#"auth.tokens=[
    {token="the token of the well-behaved client",scopes=["publish:good.**","subscribe:good.**"]},
    {token="the token that all attackers share",scopes=["publish:evil.**","subscribe:evil.**","subscribe:good.**"]},
]"#;

/// Everything else has its default, so that the defaults are what is tested. There are fewer places for connections, so
/// that the few sockets of a test can take all of them.
const SETTINGS: [&str; 4] = [
    TOKENS,
    "gateway.max_connections=600",
    "gateway.max_connections_per_address=150",
    "log.level=error",
];

#[derive(Clone, Copy)]
pub(super) struct Target {
    pub(super) ws: SocketAddr,
    pub(super) http: SocketAddr,
}

pub(super) struct AttackedServer {
    child: Child,
    target: Target,
    _folder: TempDir,
}

impl AttackedServer {
    pub(super) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = serve();
        command.args(["--ws", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data"]);
        command.arg(folder.path());
        let Ready { child, ws, http, log, .. } = ready::start(&mut command);
        ready::print(log);
        let address = |url: &str| {
            let (_, address) = url.split_once("://").expect("a URL");
            address.trim_end_matches('/').parse().expect("an address")
        };
        let (ws, http) = (address(&ws), address(&http));
        Self { child, target: Target { ws, http }, _folder: folder }
    }

    pub(super) const fn target(&self) -> Target {
        self.target
    }

    /// Returns the most memory that the process has used so far, in bytes.
    pub(super) fn peak_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
    }

    /// Returns the sum of all memory budgets in the settings.
    pub(super) fn memory_budgets() -> u64 {
        let printed = serve().arg("--print-config").output().unwrap().stdout;
        let config: toml::Table = String::from_utf8(printed).unwrap().parse().unwrap();
        let section = |name: &str| config.get(name).and_then(toml::Value::as_table);
        let budgets = section("memory").into_iter().flatten().map(|(_, bytes)| bytes);
        let ndjson = section("gateway").and_then(|gateway| gateway.get("ndjson_memory_bytes"));
        let bytes = budgets.chain(ndjson).filter_map(toml::Value::as_integer);
        bytes.map(i64::unsigned_abs).sum()
    }

    /// Fails unless the server runs, is ready, and stops in order.
    pub(super) fn assert_alive(mut self) {
        for path in ["/healthz", "/readyz"] {
            assert_eq!(health(self.target.http, path), Ok(()), "{path}");
        }
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

/// Returns the command that starts the server with the settings.
fn serve() -> Command {
    let binary = std::env::var("PROMBUS_ABUSE_BINARY");
    let mut command = Command::new(binary.as_deref().unwrap_or(env!("CARGO_BIN_EXE_prombus")));
    command.arg("serve");
    for setting in SETTINGS {
        command.args(["--set", setting]);
    }
    command
}

impl Drop for AttackedServer {
    fn drop(&mut self) {
        // A failing test leaves no process behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Checks the health of the server over a new connection, several times a second, as a load balancer does.
pub(super) struct HealthChecks {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<String>>,
}

impl HealthChecks {
    pub(super) fn start(http: SocketAddr) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut failed = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                failed.extend(health(http, "/healthz").err());
                std::thread::sleep(Duration::from_millis(250));
            }
            failed
        });
        Self { stop, thread }
    }

    /// Returns why checks failed.
    pub(super) fn stop(self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

fn health(http: SocketAddr, path: &str) -> Result<(), String> {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(http)?;
        // Only a server that hangs takes this long.
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        write!(stream, "GET {path} HTTP/1.1\r\nhost: {http}\r\nconnection: close\r\n\r\n")?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        Ok(response)
    };
    match ask() {
        Ok(response) if response.starts_with("HTTP/1.1 200 ") => Ok(()),
        Ok(response) => {
            Err(response.lines().next().unwrap_or("closed without an answer").to_owned())
        }
        Err(error) => Err(error.to_string()),
    }
}
