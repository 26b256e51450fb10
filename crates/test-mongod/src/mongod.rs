//! A server of our own, for as long as the tests run.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use mongodb::Client;
use mongodb::bson::doc;
use mongodb::options::ClientOptions;
use tempfile::TempDir;

use crate::guard::Guard;

const INSTALL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/install-mongod.sh");
pub(crate) const TAKEN_FOR_DEAD: Duration = Duration::from_secs(60);

/// What the server is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A replica set of one member.
    ReplicaSet,
    /// The same, which has users.
    ReplicaSetWithUsers,
    /// No replica set.
    Standalone,
    /// Started for a replica set that was never initiated.
    Uninitiated,
}

/// A running server. It is killed when it is dropped, or when this process ends.
pub struct Mongod {
    program: PathBuf,
    process: Child,
    guard: Guard,
    port: u16,
    kind: Kind,
    folder: TempDir,
}

impl Mongod {
    /// Starts one, and waits until it takes writes. Installs the program where it is missing.
    fn start(kind: Kind) -> Self {
        let program = installed();
        for _ in 0..5 {
            if let Some(started) = Self::try_start(&program, kind) {
                return started;
            }
        }
        panic!("{} does not start; see what it says when it is started by hand", program.display());
    }

    /// The same, for those who are on a thread that must not wait.
    pub fn start_on_its_own_thread(kind: Kind) -> Self {
        std::thread::spawn(move || Self::start(kind)).join().expect("a server")
    }

    /// Nothing if it ended at once, as it does when somebody else took the port meanwhile.
    fn try_start(program: &Path, kind: Kind) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let port = free_port();
        let (process, guard) = spawn(program, folder.path(), port, kind);
        let program = program.to_owned();
        let mut started = Self { program, process, guard, port, kind, folder };
        started.wait_until_ready(true).then_some(started)
    }

    /// Kills it in the middle of whatever it does, and starts it again with what it has on disk.
    pub fn kill_and_start_again(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        (self.process, self.guard) = spawn(&self.program, self.folder.path(), self.port, self.kind);
        assert!(self.wait_until_ready(false), "mongod does not start again");
    }

    /// Where it is.
    pub fn url(&self) -> String {
        match self.kind {
            Kind::Standalone | Kind::Uninitiated => self.direct_url(),
            _ => format!("mongodb://127.0.0.1:{}/?replicaSet=rs0", self.port),
        }
    }

    /// Where one database of it is.
    pub fn url_of(&self, database: &str) -> String {
        self.url().replacen("/?", &format!("/{database}?"), 1)
    }

    /// Where it is, whatever it is.
    pub fn direct_url(&self) -> String {
        format!("mongodb://127.0.0.1:{}/?directConnection=true", self.port)
    }

    /// Makes a user that may do everything. Allowed without a password as long as there is none, from
    /// the same machine.
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
        std::thread::spawn(add).join().expect("a user");
    }

    /// Waits until it takes writes, and makes it a replica set first if it is a new one. Says no where
    /// it ended instead.
    fn wait_until_ready(&mut self, is_new: bool) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let options = ClientOptions::parse(self.direct_url()).await.unwrap();
            let admin = Client::with_options(options).unwrap().database("admin");
            let began = Instant::now();
            let mut has_to_initiate = is_new;
            while began.elapsed() < TAKEN_FOR_DEAD {
                if self.process.try_wait().unwrap().is_some() {
                    return false;
                }
                let hello = admin.run_command(doc! { "hello": 1 }).await;
                let takes_writes = |hello: &mongodb::bson::Document| {
                    hello.get_bool("isWritablePrimary").unwrap_or(false)
                };
                match hello {
                    Ok(_) if self.kind == Kind::Uninitiated => return true,
                    Ok(hello) if takes_writes(&hello) => return true,
                    Ok(_) if has_to_initiate => {
                        let member = format!("127.0.0.1:{}", self.port);
                        let config =
                            doc! { "_id": "rs0", "members": [{ "_id": 0, "host": member }] };
                        admin.run_command(doc! { "replSetInitiate": config }).await.unwrap();
                        has_to_initiate = false;
                    }
                    _ => {}
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            panic!("mongod runs, and does not become ready");
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
    let guard = Guard::over(&process, folder);
    (process, guard)
}

impl Drop for Mongod {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The program, installed now where it is missing. Without it there is no test, and no success.
pub(crate) fn installed() -> PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM
        .get_or_init(|| {
            let said = Command::new(INSTALL).stderr(Stdio::inherit()).output();
            let said = said.unwrap_or_else(|error| panic!("{INSTALL}: {error}"));
            assert!(said.status.success(), "{INSTALL} could not install the server to test with");
            PathBuf::from(String::from_utf8(said.stdout).unwrap().trim())
        })
        .clone()
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

static SHARED: Mutex<Vec<(Kind, &'static Mongod)>> = Mutex::new(Vec::new());

/// One server of that kind for all tests; each uses a database of its own.
pub fn shared(kind: Kind) -> &'static Mongod {
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, mongod)) = shared.iter().find(|(of, _)| *of == kind) {
        return mongod;
    }
    let mongod: &'static Mongod = Box::leak(Box::new(Mongod::start_on_its_own_thread(kind)));
    shared.push((kind, mongod));
    mongod
}

/// Ends all that are shared, by their ids: what is leaked is never dropped. Without it they end with
/// the process.
pub fn end_shared() {
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    for (_, mongod) in shared.drain(..) {
        let _ = Command::new("kill").args(["-KILL", &mongod.process.id().to_string()]).status();
        let _ = std::fs::remove_dir_all(mongod.folder.path());
    }
}

/// A name that no other test of this run uses.
pub fn new_database() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    format!("test{}", NUMBER.fetch_add(1, Ordering::Relaxed))
}
