//! The test server.

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

/// A server in this process, on ports of its own.
pub(crate) struct Running {
    pub(crate) server: Server,
}

/// Starts a server with these settings, and without rate limits.
pub(crate) async fn started(set: &[&str]) -> Running {
    started_over(store::engine().await, set).await
}

/// Starts a server whose storage fails on request.
pub(crate) async fn started_with_faults(set: &[&str]) -> (Running, Faults) {
    let faults = Faults::none();
    // Heartbeats and reloads of topic settings run at their own times and must not consume faults.
    let engine = FaultyEngine::new(store::engine().await, faults.clone())
        .sparing_commits_of("gateway/")
        .sparing_reads_of("topic/");
    let engine = Arc::new(engine);
    (started_over(engine, set).await, faults)
}

/// Starts a server with an unreadable cursor of the group `g` on the topic `t`.
pub(crate) async fn started_with_unreadable_cursor() -> Running {
    let engine = store::engine().await;
    let key = Cursor::key(&Topic::new("t").unwrap(), &Group::new("g").unwrap()).unwrap();
    let value = "no cursor".into();
    let state = vec![StateOp::Put { key, value, expires_at: None, expect: Expect::Any }];
    let batch = Batch {
        events: vec![],
        expected_last: vec![],
        deleted_topics: vec![],
        state,
        durability: Durability::Buffered,
    };
    engine.commit(batch).await.unwrap();
    started_over(engine, &[]).await
}

pub(crate) async fn started_over(engine: Arc<dyn Engine>, set: &[&str]) -> Running {
    let config = Config::load(&sources(set)).unwrap_or_else(|error| panic!("{error}"));
    let threads = Threads::current_only();
    Running { server: Server::start_over(engine, threads, &config).await.unwrap() }
}

pub(crate) fn sources(set: &[&str]) -> Sources {
    let defaults = ["server.ws=127.0.0.1:0", "server.http=127.0.0.1:0", "limits.enabled=false"];
    let set = defaults.iter().chain(set).map(|&text| text.to_owned()).collect();
    Sources { set, ..Sources::default() }
}

impl Running {
    pub(crate) fn address(&self) -> SocketAddr {
        self.server.ws()
    }

    /// Returns the last `seq` of a topic.
    pub(crate) async fn last_of(&self, topic: &str) -> Seq {
        let topic = Topic::new(topic).unwrap();
        self.server.engine().bounds(&topic).await.unwrap().last()
    }

    pub(crate) async fn connect(&self) -> Client {
        Client::connect(self.address()).await
    }

    /// Opens a connection without a WebSocket handshake.
    pub(crate) async fn tcp(&self) -> TcpStream {
        TcpStream::connect(self.address()).await.unwrap()
    }
}
