//! A MongoDB server for the duration of a test.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mongodb::Client;
use mongodb::bson::doc;
use mongodb::options::ClientOptions;
use parking_lot::Mutex;
use tempfile::TempDir;

use crate::guard::Guard;

const INSTALL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/install-mongod.sh");
pub(crate) const STARTUP_TIMEOUT: Duration = Duration::from_secs(60);

/// How the server is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A replica set of one member.
    ReplicaSet,
    /// A replica set of one member with access control.
    ReplicaSetWithUsers,
    /// Not a replica set.
    Standalone,
    /// Started as a member of a replica set that was never initiated.
    Uninitiated,
}

/// A running server. It is killed when it is dropped, or when this process exits.
pub struct Mongod {
    program: PathBuf,
    process: Child,
    guard: Guard,
    port: u16,
    kind: Kind,
    folder: TempDir,
}

impl Mongod {
    /// Starts a server and waits until it is ready. Installs the program if it is missing.
    fn start(kind: Kind) -> Self {
        let program = installed();
        for _ in 0..5 {
            if let Some(started) = Self::try_start(&program, kind) {
                return started;
            }
        }
        panic!("{} does not start; start it by hand to see why", program.display());
    }

    /// Starts a server from a thread that must not block on a runtime.
    pub fn start_on_thread(kind: Kind) -> Self {
        std::thread::spawn(move || Self::start(kind)).join().expect("the server starts")
    }

    /// Returns `None` if the server exits at once, as it does if another process took the port.
    fn try_start(program: &Path, kind: Kind) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let port = free_port();
        let (process, guard) = spawn(program, folder.path(), port, kind);
        let program = program.to_owned();
        let mut started = Self { program, process, guard, port, kind, folder };
        started.wait_until_ready(true).then_some(started)
    }

    /// Kills the server in the middle of whatever it does, and restarts it on the same folder.
    pub fn kill_and_restart(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        (self.process, self.guard) = spawn(&self.program, self.folder.path(), self.port, self.kind);
        assert!(self.wait_until_ready(false), "mongod does not start again");
    }

    /// The connection string.
    pub fn url(&self) -> String {
        match self.kind {
            Kind::Standalone | Kind::Uninitiated => self.direct_url(),
            _ => format!("mongodb://127.0.0.1:{}/?replicaSet=rs0", self.port),
        }
    }

    /// The connection string with a database.
    pub fn database_url(&self, database: &str) -> String {
        self.url().replacen("/?", &format!("/{database}?"), 1)
    }

    /// A direct connection, which works for every kind.
    pub fn direct_url(&self) -> String {
        format!("mongodb://127.0.0.1:{}/?directConnection=true", self.port)
    }

    /// Creates a root user. MongoDB allows that without credentials from localhost, as long as
    /// there is no user.
    pub fn add_user(&self, name: &str, password: &str) {
        let url = self.direct_url();
        let user = doc! { "createUser": name, "pwd": password, "roles": ["root"] };
        let add = move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let admin = Client::with_uri_str(url).await.unwrap().database("admin");
                admin.run_command(user).await.unwrap();
            });
        };
        std::thread::spawn(add).join().expect("the user is created");
    }

    /// Waits until the server accepts writes. Initiates the replica set first if it is new. Returns
    /// `false` if the server exits instead.
    fn wait_until_ready(&mut self, is_new: bool) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let options = ClientOptions::parse(self.direct_url()).await.unwrap();
            let admin = Client::with_options(options).unwrap().database("admin");
            let started = Instant::now();
            let mut must_initiate = is_new;
            while started.elapsed() < STARTUP_TIMEOUT {
                if self.process.try_wait().unwrap().is_some() {
                    return false;
                }
                let hello = admin.run_command(doc! { "hello": 1 }).await;
                let is_primary = |hello: &mongodb::bson::Document| {
                    hello.get_bool("isWritablePrimary").unwrap_or(false)
                };
                match hello {
                    Ok(_) if self.kind == Kind::Uninitiated => return true,
                    Ok(hello) if is_primary(&hello) => return true,
                    Ok(_) if must_initiate => {
                        let member = format!("127.0.0.1:{}", self.port);
                        let config =
                            doc! { "_id": "rs0", "members": [{ "_id": 0, "host": member }] };
                        admin.run_command(doc! { "replSetInitiate": config }).await.unwrap();
                        must_initiate = false;
                    }
                    _ => {}
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            panic!("mongod does not become ready");
        })
    }
}

pub(crate) fn spawn(program: &Path, folder: &Path, port: u16, kind: Kind) -> (Child, Guard) {
    let mut command = Command::new(program);
    command
        .arg("--dbpath")
        .arg(folder)
        .args(["--port", &port.to_string()])
        .args(["--bind_ip", "127.0.0.1", "--nounixsocket"])
        .args(["--setParameter", "ttlMonitorSleepSecs=1"])
        .args(["--wiredTigerCacheSizeGB", "0.5"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if kind != Kind::Standalone {
        command.args(["--replSet", "rs0", "--oplogSize", "128"]);
    }
    if kind == Kind::ReplicaSetWithUsers {
        let key = folder.join("members.key");
        std::fs::write(&key, "onlyForThisTestWithNoSecretBehindIt").unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&key, private).unwrap();
        command.arg("--keyFile").arg(key);
    }
    let process = command.spawn().expect("mongod was installed");
    let guard = Guard::new(&process, folder);
    (process, guard)
}

impl Drop for Mongod {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the path of the program, after installing it if it is missing. Fails the test otherwise.
pub(crate) fn installed() -> PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM
        .get_or_init(|| {
            let output = Command::new(INSTALL).stderr(Stdio::inherit()).output();
            let output = output.unwrap_or_else(|error| panic!("{INSTALL}: {error}"));
            assert!(output.status.success(), "{INSTALL} cannot install the test server");
            PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
        })
        .clone()
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

static SHARED: Mutex<Vec<(Kind, &'static Mongod)>> = Mutex::new(Vec::new());

/// Returns the server of this kind that all tests share. Each test uses its own database.
pub fn shared(kind: Kind) -> &'static Mongod {
    let mut shared = SHARED.lock();
    if let Some((_, mongod)) = shared.iter().find(|(of, _)| *of == kind) {
        return mongod;
    }
    let mongod: &'static Mongod = Box::leak(Box::new(Mongod::start_on_thread(kind)));
    shared.push((kind, mongod));
    mongod
}

/// Kills all shared servers. They are leaked and so never dropped; without this call their guards
/// kill them when the process exits.
pub fn stop_shared() {
    let mut shared = SHARED.lock();
    for (_, mongod) in shared.drain(..) {
        let _ = Command::new("kill").args(["-KILL", &mongod.process.id().to_string()]).status();
        let _ = std::fs::remove_dir_all(mongod.folder.path());
    }
}

/// Returns a database name that no other test of this process uses.
pub fn new_database() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    format!("test{}", NUMBER.fetch_add(1, Ordering::Relaxed))
}
