//! A replica set of several members, whose primary can be killed.

use std::process::Child;
use std::time::{Duration, Instant};

use mongodb::Client;
use mongodb::bson::{Document, doc};
use mongodb::options::ClientOptions;
use tempfile::TempDir;

use crate::Kind;
use crate::guard::Guard;
use crate::mongod::{STARTUP_TIMEOUT, free_port, installed, spawn};

/// The default of ten seconds would make tests wait for nothing.
const ELECTION_TIMEOUT_MS: i32 = 1000;
/// Two seconds by default.
const HEARTBEAT_MS: i32 = 200;

/// A running replica set. Its members are killed when it is dropped, or when this process exits.
pub struct ReplicaSet {
    members: Vec<Member>,
}

impl ReplicaSet {
    /// Starts the members, and waits until one of them is the primary and the others follow it.
    pub async fn start(members: usize) -> Self {
        let mut set = Self { members: (0..members).map(|_| Member::new()).collect() };
        let configuration = doc! {
            "_id": "rs0",
            "members": set.members.iter().zip(0..).map(Member::in_configuration).collect::<Vec<_>>(),
            "settings": {
                "electionTimeoutMillis": ELECTION_TIMEOUT_MS,
                "heartbeatIntervalMillis": HEARTBEAT_MS,
            },
        };
        for member in &mut set.members {
            member.wait_until(|_| true).await;
        }
        let first = set.members[0].admin().await;
        first.run_command(doc! { "replSetInitiate": configuration }).await.unwrap();
        for member in &mut set.members {
            member.wait_until(is_primary_or_secondary).await;
        }
        set.primary().await;
        set
    }

    /// The connection string with a database.
    pub fn database_url(&self, database: &str) -> String {
        let members: Vec<String> = self.members.iter().map(Member::address).collect();
        format!("mongodb://{}/{database}?replicaSet=rs0", members.join(","))
    }

    /// Waits for a primary and kills it in the middle of whatever it does. Returns its number.
    pub async fn kill_primary(&mut self) -> usize {
        let primary = self.primary().await;
        self.members[primary].kill();
        primary
    }

    /// Restarts a killed member on its folder, and waits until it is a primary or a secondary
    /// again.
    pub async fn restart(&mut self, member: usize) {
        let member = &mut self.members[member];
        member.start();
        member.wait_until(is_primary_or_secondary).await;
    }

    /// Waits for a primary. Returns its number.
    async fn primary(&mut self) -> usize {
        let started = Instant::now();
        while started.elapsed() < STARTUP_TIMEOUT {
            for (number, member) in self.members.iter().enumerate() {
                if member.is_running() && member.hello().await.as_ref().is_some_and(is_primary) {
                    return number;
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("the members elect no primary");
    }
}

/// One server of the set, at a fixed port.
struct Member {
    port: u16,
    running: Option<(Child, Guard)>,
    folder: TempDir,
}

impl Member {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut member = Self { port: free_port(), running: None, folder };
        member.start();
        member
    }

    fn start(&mut self) {
        assert!(!self.is_running(), "the member is already running");
        let folder = self.folder.path();
        self.running = Some(spawn(&installed(), folder, self.port, Kind::ReplicaSet));
    }

    fn kill(&mut self) {
        if let Some((mut process, _guard)) = self.running.take() {
            // Child::kill is SIGKILL.
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    const fn is_running(&self) -> bool {
        self.running.is_some()
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn in_configuration((member, number): (&Self, i32)) -> Document {
        doc! { "_id": number, "host": member.address() }
    }

    /// Waits until the reply to `hello` satisfies `condition`.
    async fn wait_until(&mut self, condition: fn(&Document) -> bool) {
        let started = Instant::now();
        while started.elapsed() < STARTUP_TIMEOUT {
            let (process, _) = self.running.as_mut().expect("the member was started");
            let status = process.try_wait().unwrap();
            assert_eq!(status, None, "mongod exited; start it by hand to see why");
            if self.hello().await.as_ref().is_some_and(condition) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("mongod does not become ready");
    }

    async fn hello(&self) -> Option<Document> {
        self.admin().await.run_command(doc! { "hello": 1 }).await.ok()
    }

    async fn admin(&self) -> mongodb::Database {
        let url = format!("mongodb://{}/?directConnection=true", self.address());
        let mut options = ClientOptions::parse(url).await.unwrap();
        options.server_selection_timeout = Some(Duration::from_secs(1));
        Client::with_options(options).unwrap().database("admin")
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Some((process, _)) = &mut self.running {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn is_primary(hello: &Document) -> bool {
    hello.get_bool("isWritablePrimary").unwrap_or(false)
}

fn is_primary_or_secondary(hello: &Document) -> bool {
    is_primary(hello) || hello.get_bool("secondary").unwrap_or(false)
}
