//! The binary, started for a benchmark.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

#[allow(dead_code, reason = "a benchmark needs one address or the other")]
pub(crate) struct ServerProcess {
    child: Child,
    /// Where the gateway listens.
    pub(crate) ws: String,
    /// Where HTTP listens.
    #[allow(dead_code, reason = "not every benchmark asks by HTTP")]
    pub(crate) http: String,
}

impl ServerProcess {
    pub(crate) fn start(arguments: &[&str]) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let mut child = Command::new(env!("CARGO_BIN_EXE_prombus"))
            .args(["--ws", "127.0.0.1:0", "--http", "127.0.0.1:0"])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()?;
        let out = BufReader::new(child.stdout.take().ok_or("it has no output")?);
        let mut lines = out.lines();
        let mut address = |name: &str| {
            lines.find_map(|line| Some(line.ok()?.strip_prefix(name)?.trim_matches('/').to_owned()))
        };
        let (ws, http) = (address("WebSocket gateway: ws://"), address("HTTP: http://"));
        // Read on, or it could not say goodbye.
        std::thread::spawn(move || lines.for_each(drop));
        let silent = "the server did not say where it listens";
        Ok(Self { child, ws: ws.ok_or(silent)?, http: http.ok_or(silent)? })
    }

    pub(crate) fn resident_bytes(&self) -> Result<u64, Box<dyn Error + Send + Sync>> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).ok_or("no VmRSS")?;
        Ok(kib.trim().parse::<u64>()? * 1024)
    }

    pub(crate) fn stop(mut self) -> Result<(), Box<dyn Error + Send + Sync>> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let status = self.child.wait()?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("the server ended with {status}").into())
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // One that was stopped is gone already.
        let _ = self.child.kill();
    }
}
