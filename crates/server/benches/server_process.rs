//! Starts the binary for a benchmark.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

#[allow(dead_code, reason = "no benchmark uses all of it")]
pub(crate) struct ServerProcess {
    child: Child,
    pub(crate) ws: String,
    pub(crate) http: String,
}

#[allow(dead_code, reason = "no benchmark uses all of it")]
impl ServerProcess {
    pub(crate) fn start(arguments: &[&str]) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let mut child = Command::new(env!("CARGO_BIN_EXE_prombus"))
            .args(["--ws", "127.0.0.1:0", "--http", "127.0.0.1:0"])
            .args(["--set", "log.format=text"])
            .args(arguments)
            .stderr(Stdio::piped())
            .spawn()?;
        let log = BufReader::new(child.stderr.take().ok_or("no stderr")?);
        let mut lines = log.lines();
        let mut address = |name: &str| {
            lines.find_map(|line| Some(line.ok()?.strip_prefix(name)?.trim_matches('/').to_owned()))
        };
        let (ws, http) = (address("WebSocket gateway: ws://"), address("HTTP: http://"));
        // Keeps draining the log, so that the server never blocks on it.
        std::thread::spawn(move || lines.for_each(drop));
        let missing = "the server did not print its addresses";
        Ok(Self { child, ws: ws.ok_or(missing)?, http: http.ok_or(missing)? })
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
            Err(format!("the server exited with {status}").into())
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // Fails if the server has already been stopped.
        let _ = self.child.kill();
    }
}
