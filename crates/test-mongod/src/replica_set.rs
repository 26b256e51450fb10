//! A replica set of several members, whose primary can be killed.

use std::process::Child;
use std::time::{Duration, Instant};

use mongodb::Client;
use mongodb::bson::{Document, doc};
use mongodb::options::ClientOptions;
use tempfile::TempDir;

use crate::Kind;
use crate::guard::Guard;
use crate::mongod::{TAKEN_FOR_DEAD, free_port, installed, spawn};

/// After so long without a primary its members elect another; ten seconds unless said otherwise, which
/// would make tests wait for nothing that they are about.
const ELECTION_TIMEOUT_MS: i32 = 1000;
/// How often members look for each other; two seconds unless said otherwise.
const HEARTBEAT_MS: i32 = 200;

/// A running replica set. Its members are killed when it is dropped, or when this process ends.
pub struct ReplicaSet {
    members: Vec<Member>,
}

impl ReplicaSet {
    /// Starts one of so many members, and waits until one of them is primary and the others follow it.
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
            member.until(|_| true).await;
        }
        let first = set.members[0].admin().await;
        first.run_command(doc! { "replSetInitiate": configuration }).await.unwrap();
        for member in &mut set.members {
            member.until(takes_part).await;
        }
        set.primary().await;
        set
    }

    /// Where one database of it is.
    pub fn url_of(&self, database: &str) -> String {
        let members: Vec<String> = self.members.iter().map(Member::address).collect();
        format!("mongodb://{}/{database}?replicaSet=rs0", members.join(","))
    }

    /// Kills the primary in the middle of whatever it does, and says which member it was. Waits for one
    /// where there is none.
    pub async fn kill_primary(&mut self) -> usize {
        let primary = self.primary().await;
        self.members[primary].kill();
        primary
    }

    /// Starts a member that was killed, with what it has on disk, and waits until it takes part again.
    pub async fn start_again(&mut self, member: usize) {
        let member = &mut self.members[member];
        member.start();
        member.until(takes_part).await;
    }

    /// Which member is primary, as soon as one is.
    async fn primary(&mut self) -> usize {
        let began = Instant::now();
        while began.elapsed() < TAKEN_FOR_DEAD {
            for (number, member) in self.members.iter().enumerate() {
                if member.is_running() && member.hello().await.as_ref().is_some_and(is_primary) {
                    return number;
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("the members run, and elect no primary");
    }
}

/// One server of the set, at a port that stays.
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
        assert!(!self.is_running(), "it runs already");
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

    /// Waits until what it says of itself is as wanted.
    async fn until(&mut self, wanted: fn(&Document) -> bool) {
        let began = Instant::now();
        while began.elapsed() < TAKEN_FOR_DEAD {
            let (process, _) = self.running.as_mut().expect("it was started");
            let ended = process.try_wait().unwrap();
            assert_eq!(ended, None, "mongod ended; see what it says when it is started by hand");
            if self.hello().await.as_ref().is_some_and(wanted) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("mongod runs, and does not become ready");
    }

    /// What it says of itself, if it does.
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

/// Whether it is primary, or follows one.
fn takes_part(hello: &Document) -> bool {
    is_primary(hello) || hello.get_bool("secondary").unwrap_or(false)
}
