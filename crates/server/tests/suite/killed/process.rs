//! The built binary, started and killed.

use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command};
use std::sync::Mutex;

use rustix::process::{Pid, Signal, kill_process};

use crate::ready::{self, Ready};
use crate::store::Store;

pub(crate) struct Process {
    child: Mutex<Child>,
    pub(crate) url: String,
    pub(crate) http: SocketAddr,
}

impl Process {
    pub(crate) fn start(store: &Store) -> Self {
        let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
        Self::start_at(store, anywhere, anywhere)
    }

    pub(crate) fn start_at(store: &Store, ws: SocketAddr, http: SocketAddr) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_prombus"));
        command
            .args(["serve", "--ws", &ws.to_string(), "--http", &http.to_string()])
            .args(["--set", "limits.enabled=false", "--set", "log.level=error"])
            // On a shared store, a killed server is replaced soon.
            .args(["--set", "groups.lease_ms=2000"])
            .args(["--set", "groups.retry.first_ms=10", "--set", "groups.retry.max_ms=200"])
            .args(store.arguments());
        let Ready { child, ws, http, log, .. } = ready::start(&mut command);
        ready::print(log);
        let http = http.trim_start_matches("http://").parse().expect("an address");
        Self { child: Mutex::new(child), url: ws, http }
    }

    /// Suspends the process.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    pub(crate) fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child.lock().unwrap()), signal)
            .expect("the process runs");
    }

    pub(crate) fn kill(&self) {
        let mut child = self.child.lock().unwrap();
        // Child::kill is SIGKILL.
        child.kill().expect("the process runs");
        child.wait().expect("the process exits");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A failing test leaves no process behind.
        let _ = self.child.get_mut().unwrap().kill();
    }
}

/// An address that nobody listens on.
pub(crate) fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}
