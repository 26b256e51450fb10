//! A server to test.

use std::net::SocketAddr;
use std::sync::Arc;

use prombus_bus::cursor::Cursor;
use prombus_engine::{Batch, Durability, Engine, Expect, Faults, FaultyEngine, StateOp};
use prombus_proto::{Group, Seq, Topic};
use prombus_server::config::{Config, Sources};
use prombus_server::server::Server;
use prombus_server::threads::Threads;
use tokio::net::TcpStream;

use crate::gateway::client::Client;
use crate::store;

/// A server of this process, on a port of its own.
pub(crate) struct Running {
    pub(crate) server: Server,
}

/// Starts one without limits of rate but with these settings.
pub(crate) async fn started(set: &[&str]) -> Running {
    started_over(store::engine().await, set).await
}

/// Starts one whose storage fails when it is told to.
pub(crate) async fn started_with_faults(set: &[&str]) -> (Running, Faults) {
    let faults = Faults::none();
    // What a gateway that shares its store does at times of its own: it says that it lives, and looks
    // what others set.
    let engine = FaultyEngine::new(store::engine().await, faults.clone())
        .sparing_commits_of("gateway/")
        .sparing_reads_of("topic/");
    let engine = Arc::new(engine);
    (started_over(engine, set).await, faults)
}

/// Starts one whose group g on the topic t has a cursor that nobody can read.
pub(crate) async fn started_with_unreadable_cursor() -> Running {
    let engine = store::engine().await;
    let key = Cursor::key(&Topic::new("t").unwrap(), &Group::new("g").unwrap()).unwrap();
    let value = "no cursor".into();
    let state = vec![StateOp::Put { key, value, expires_at: None, expect: Expect::Any }];
    let batch =
        Batch { events: vec![], expected_last: vec![], state, durability: Durability::Buffered };
    engine.commit(batch).await.unwrap();
    started_over(engine, &[]).await
}

pub(crate) async fn started_over(engine: Arc<dyn Engine>, set: &[&str]) -> Running {
    let config = Config::load(&sources(set)).unwrap_or_else(|error| panic!("{error}"));
    let threads = Threads::current_only();
    Running { server: Server::start_over(engine, threads, &config).await.unwrap() }
}

pub(crate) fn sources(set: &[&str]) -> Sources {
    let usual = ["server.ws=127.0.0.1:0", "server.http=127.0.0.1:0", "limits.enabled=false"];
    let set = usual.iter().chain(set).map(|&text| text.to_owned()).collect();
    Sources { set, ..Sources::default() }
}

impl Running {
    pub(crate) fn address(&self) -> SocketAddr {
        self.server.ws()
    }

    /// Where a topic ends.
    pub(crate) async fn last_of(&self, topic: &str) -> Seq {
        let topic = Topic::new(topic).unwrap();
        self.server.engine().bounds(&topic).await.unwrap().last()
    }

    pub(crate) async fn connect(&self) -> Client {
        Client::connect(self.address()).await
    }

    /// A connection that is no WebSocket yet.
    pub(crate) async fn tcp(&self) -> TcpStream {
        TcpStream::connect(self.address()).await.unwrap()
    }
}
