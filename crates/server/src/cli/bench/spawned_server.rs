//! A server process started for a benchmark, which stops with it.

use std::env;
use std::error::Error;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use prombus_client::transport::{Protocol, ServerAddress};
use prombus_proto::{RandomSource, SystemRandom};
use prombus_server::config::EngineConfig;
use rustix::process::{Pid, Signal, kill_process};

use super::target_arguments::BenchStore;

/// A server process of this same binary, on free ports.
pub(super) struct SpawnedServer {
    child: Child,
    ws: String,
    http: String,
}

impl SpawnedServer {
    /// Starts a server with these settings, and defaults otherwise.
    pub(super) fn start(store: &BenchStore, settings: &[&str]) -> Result<Self, Box<dyn Error>> {
        let engine = match &store.engine {
            EngineConfig::Disk => "disk",
            EngineConfig::Memory => "memory",
            EngineConfig::Mongo(address) => address.reveal(),
        };
        let mut command = Command::new(env::current_exe()?);
        // The configuration of the user's own server must not apply.
        let names = env::vars_os().map(|(name, _)| name);
        for name in names.filter(|name| name.to_string_lossy().starts_with("PROMBUS_")) {
            command.env_remove(name);
        }
        // The address of a database may contain a password, which a command line would expose.
        command.env("PROMBUS_SERVER_ENGINE", engine);
        command.args(["serve", "--ws", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data"]);
        command.arg(&store.data).args(["--set", "log.level=warn", "--set", "log.format=text"]);
        for setting in settings {
            command.args(["--set", setting]);
        }
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let log = child.stderr.take().ok_or("the server has no stderr")?;
        let mut server = Self { child, ws: String::new(), http: String::new() };
        let mut banner = String::new();
        let mut lines = BufReader::new(log).lines();
        for line in lines.by_ref() {
            let line = line?;
            if let Some(url) = line.strip_prefix("WebSocket gateway: ") {
                url.clone_into(&mut server.ws);
            } else if let Some(url) = line.strip_prefix("HTTP: ") {
                url.clone_into(&mut server.http);
            } else if line.starts_with("ready") {
                // Warnings are for the user. The banner and the last line are not.
                std::thread::spawn(move || {
                    let lines = lines.map_while(Result::ok);
                    let warnings = lines.filter(|line| !line.starts_with("stopped"));
                    warnings.for_each(|line| eprintln!("{line}"));
                });
                return Ok(server);
            }
            banner = banner + &line + "\n";
        }
        Err(format!("the benchmark server failed to start:\n{banner}").into())
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn gateway(&self) -> Result<ServerAddress, Box<dyn Error>> {
        Ok(ServerAddress::new(&self.ws, Protocol::WebSocket, None)?)
    }

    pub(super) fn http(&self) -> Result<ServerAddress, Box<dyn Error>> {
        Ok(ServerAddress::new(&self.http, Protocol::Http, None)?)
    }

    /// Shuts the server down gracefully, and waits for it to exit.
    pub(super) fn stop(mut self) -> Result<(), Box<dyn Error>> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let status = self.child.wait()?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("the benchmark server failed: {status}").into())
        }
    }
}

impl Drop for SpawnedServer {
    fn drop(&mut self) {
        // Fails if the server was stopped already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A temporary directory, removed on drop.
pub(super) struct TempDir(PathBuf);

impl TempDir {
    /// Creates a directory in the system's temporary directory (`TMPDIR`).
    pub(super) fn new() -> io::Result<Self> {
        let name = format!("prombus-bench-{:016x}", SystemRandom.next_u64());
        let path = env::temp_dir().join(name);
        std::fs::create_dir(&path)?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // Leftovers are for the system to clean up.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
