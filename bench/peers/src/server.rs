//! The server of one measurement: on a free port, with an empty folder.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use tempfile::TempDir;

use crate::client::Result;
use crate::system::{Program, System};

const START_TIMEOUT: Duration = Duration::from_secs(30);

/// A running server. Dropping it kills the process and removes its folder.
pub(crate) struct Server {
    process: Child,
    folder: TempDir,
    pub(crate) address: SocketAddr,
}

impl Server {
    /// Starts a server with a folder under `scratch`, and waits until it listens.
    pub(crate) fn start(system: System, program: &Path, scratch: &Path) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("data-").tempdir_in(scratch)?;
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let log = fs::File::create(folder.path().join("server.log"))?;
        // The kernel kills the server when this process ends, however it ends.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program);
        command.args(arguments(system, folder.path(), address)?);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let process = command.spawn().map_err(|error| format!("setpriv: {error}"))?;
        let mut server = Self { process, folder, address };
        server.wait_until_listening()?;
        Ok(server)
    }

    fn wait_until_listening(&mut self) -> Result<()> {
        let started = Instant::now();
        while TcpStream::connect(self.address).is_err() {
            let ended = self.process.try_wait()?;
            if ended.is_some() || started.elapsed() > START_TIMEOUT {
                let log = fs::read_to_string(self.folder.path().join("server.log"))?;
                let last = log.lines().last().unwrap_or("it logged nothing");
                return Err(format!("the server did not start: {last}").into());
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn arguments(system: System, folder: &Path, address: SocketAddr) -> Result<Vec<String>> {
    let data = folder.join("data");
    fs::create_dir(&data)?;
    let data = data.to_str().ok_or("the scratch folder is not UTF-8")?;
    let port = address.port();
    let line = match system.program() {
        Program::Prombus => {
            format!("serve --ws {address} --http 127.0.0.1:0 --data {data}")
        }
        Program::Nats => {
            let config = folder.join("nats.conf");
            let sync = system.settings().replace("; ", "\n");
            let text =
                format!("listen: {address}\njetstream {{\nstore_dir: \"{data}\"\n{sync}\n}}\n");
            fs::write(&config, text)?;
            return Ok(vec!["--config".to_owned(), config.display().to_string()]);
        }
        Program::Redis => format!("--bind 127.0.0.1 --port {port} --dir {data}"),
        Program::Mongod => {
            format!("--bind_ip 127.0.0.1 --port {port} --dbpath {data} --nounixsocket")
        }
    };
    let settings = system.settings();
    let words = line.split(' ').chain(settings.split(' ')).filter(|word| !word.is_empty());
    Ok(words.map(|word| word.trim_matches('\'').to_owned()).collect())
}
