//! A server process that is started for a bench, and ends with it.

use std::env;
use std::error::Error;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use prombus_client::transport::{Protocol, ServerAddress};
use prombus_proto::{RandomSource, SystemRandom};
use prombus_server::config::EngineChoice;
use rustix::process::{Pid, Signal, kill_process};

use super::target_arguments::Store;

/// A server from this very binary, on ports of its own.
pub(super) struct OwnServer {
    child: Child,
    ws: String,
    http: String,
}

impl OwnServer {
    /// Starts one with these settings, and defaults otherwise.
    pub(super) fn start(store: &Store, settings: &[&str]) -> Result<Self, Box<dyn Error>> {
        let engine = match &store.engine {
            EngineChoice::Disk => "disk",
            EngineChoice::Memory => "memory",
            EngineChoice::Mongo(address) => address.reveal(),
        };
        let mut command = Command::new(env::current_exe()?);
        // How somebody's usual server is set up is not meant.
        let foreign = env::vars_os().map(|(name, _)| name);
        for name in foreign.filter(|name| name.to_string_lossy().starts_with("PROMBUS_")) {
            command.env_remove(name);
        }
        // A database's address may hold a password, which a command line would show.
        command.env("PROMBUS_SERVER_ENGINE", engine);
        command.args(["serve", "--ws", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data"]);
        command.arg(&store.data).args(["--set", "log.level=warn"]);
        for setting in settings {
            command.args(["--set", setting]);
        }
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let out = child.stdout.take().ok_or("the server has no output")?;
        let mut server = Self { child, ws: String::new(), http: String::new() };
        let mut lines = BufReader::new(out).lines();
        for line in lines.by_ref() {
            let line = line?;
            if let Some(url) = line.strip_prefix("WebSocket gateway: ") {
                url.clone_into(&mut server.ws);
            } else if let Some(url) = line.strip_prefix("HTTP: ") {
                url.clone_into(&mut server.http);
            } else if line.starts_with("ready") {
                // Read on, or it could not say goodbye.
                std::thread::spawn(move || lines.for_each(drop));
                return Ok(server);
            }
        }
        Err("the server that was started for the bench ended; it says why above".into())
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

    /// Has it store what waits, and waits for its end.
    pub(super) fn stop(mut self) -> Result<(), Box<dyn Error>> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let status = self.child.wait()?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("the server that was started for the bench ended with {status}").into())
        }
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        // One that was stopped is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder that goes with this.
pub(super) struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    /// A new one, where the system has such folders (TMPDIR).
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

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // What cannot be removed is left to whoever cleans up there.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
