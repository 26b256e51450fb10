//! The built binary, started and killed.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use rustix::process::{Pid, Signal, kill_process};

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
        let mut child = Command::new(env!("CARGO_BIN_EXE_prombus"))
            .args(["serve", "--ws", &ws.to_string(), "--http", &http.to_string()])
            .args(["--set", "limits.enabled=false", "--set", "log.level=error"])
            // One that was killed is replaced soon, on a store that others could use.
            .args(["--set", "groups.lease_ms=2000"])
            .args(store.arguments())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let mut said_after = |start: &str| {
            lines
                .by_ref()
                .map(|line| line.expect("it speaks"))
                .find_map(|line| line.strip_prefix(start).map(str::to_owned))
                .expect("it says where it listens")
        };
        let url = said_after("WebSocket gateway: ");
        let http = said_after("HTTP: http://").parse().expect("an address");
        Self { child: Mutex::new(child), url, http }
    }

    /// It stays, and does nothing.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    pub(crate) fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child.lock().unwrap()), signal).expect("it runs");
    }

    pub(crate) fn kill(&self) {
        let mut child = self.child.lock().unwrap();
        // Child::kill is SIGKILL.
        child.kill().expect("it runs");
        child.wait().expect("it is dead");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A test that fails leaves no process behind.
        let _ = self.child.get_mut().unwrap().kill();
    }
}

/// One that nobody listens at now.
pub(crate) fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}
