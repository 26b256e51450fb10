//! A server to test with, and what tests look at.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prombus_client::transport::{HttpClient, Protocol, ServerAddress};
use prombus_client::{Builder, Client, Event};
use prombus_engine::{Engine, Faults, FaultyEngine, MemoryEngine};
use prombus_proto::{SystemClock, Topic};
use prombus_server::config::{Config, Sources};
use prombus_server::server::Server;
use prombus_server::threads::Threads;
use serde_json::Value;

/// A server of this process, on ports of its own.
pub(crate) struct Running {
    pub(crate) server: Server,
}

/// Starts one in memory, without limits of rate but with these settings.
pub(crate) async fn started(set: &[&str]) -> Running {
    started_over(memory(), set).await
}

/// Starts one whose storage fails when it is told to.
pub(crate) async fn started_with_faults(set: &[&str]) -> (Running, Faults) {
    let faults = Faults::none();
    let engine = Arc::new(FaultyEngine::new(memory(), faults.clone()));
    (started_over(engine, set).await, faults)
}

fn memory() -> Arc<dyn Engine> {
    Arc::new(MemoryEngine::new(Arc::new(SystemClock)))
}

pub(crate) async fn started_over(engine: Arc<dyn Engine>, set: &[&str]) -> Running {
    let usual = ["server.ws=127.0.0.1:0", "server.http=127.0.0.1:0", "limits.enabled=false"];
    let set = usual.iter().chain(set).map(|&text| text.to_owned()).collect();
    let sources = Sources { set, ..Sources::default() };
    let config = Config::load(&sources).unwrap_or_else(|error| panic!("{error}"));
    let threads = Threads::start(2).unwrap();
    Running { server: Server::start_over(engine, threads, &config).await.unwrap() }
}

impl Running {
    pub(crate) fn ws(&self) -> SocketAddr {
        self.server.ws()
    }

    pub(crate) fn builder(&self) -> Builder {
        through(&self.server.ws_url()).http(self.server.http_url())
    }

    pub(crate) async fn connect(&self) -> Client {
        self.builder().connect().await.unwrap()
    }

    /// All that a topic holds, by a client of its own.
    pub(crate) async fn stored(&self, topic: &str) -> Vec<Event<Value>> {
        let client = self.connect().await;
        let mut events = client.export(topic).stream().unwrap();
        let mut stored = Vec::new();
        while let Some(event) = events.next().await {
            stored.push(event.unwrap());
        }
        client.close().await;
        stored
    }

    pub(crate) async fn payloads(&self, topic: &str) -> Vec<Value> {
        self.stored(topic).await.into_iter().map(|event| event.payload).collect()
    }
}

/// A client of whatever is at `url`, that does not wait long between tries.
pub(crate) fn through(url: &str) -> Builder {
    Client::builder(url).back_off(Duration::from_millis(2), Duration::from_millis(20))
}

/// What handlers leave behind, in order. Clones share it.
pub(crate) struct Ledger<T>(Arc<(Mutex<Vec<T>>, tokio::sync::Notify)>);

impl<T> Clone for Ledger<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Clone + Debug> Ledger<T> {
    pub(crate) fn new() -> Self {
        Self(Arc::new((Mutex::new(Vec::new()), tokio::sync::Notify::new())))
    }

    pub(crate) fn write(&self, entry: T) {
        self.0.0.lock().unwrap().push(entry);
        self.0.1.notify_waiters();
    }

    pub(crate) fn all(&self) -> Vec<T> {
        self.0.0.lock().unwrap().clone()
    }

    /// All of it, when there are so many.
    pub(crate) async fn when(&self, count: usize) -> Vec<T> {
        within(async {
            loop {
                let more = self.0.1.notified();
                let all = self.all();
                if all.len() >= count {
                    return all;
                }
                more.await;
            }
        })
        .await
        .unwrap_or_else(|_| panic!("{count} entries do not come: {:?}", self.all()))
    }
}

/// What has to come, in a time that is long enough for any machine.
pub(crate) async fn within<F: Future>(future: F) -> Result<F::Output, tokio::time::error::Elapsed> {
    tokio::time::timeout(Duration::from_secs(60), future).await
}

impl Running {
    /// Waits until the topic holds so many events.
    pub(crate) async fn until_stored(&self, topic: &str, count: u64) {
        let topic = Topic::new(topic).unwrap();
        within(async {
            while self.server.engine().bounds(&topic).await.unwrap().next.0 <= count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await
        .unwrap();
    }

    /// Waits until so many events of the topic are on lease, to whichever group.
    pub(crate) async fn until_lent(&self, topic: &str, count: u64) {
        self.until_groups_say(topic, "in_flight", count).await;
    }

    /// Waits until so many events are not done, by whichever group.
    pub(crate) async fn until_lag(&self, topic: &str, count: u64) {
        self.until_groups_say(topic, "lag_events", count).await;
    }

    async fn until_groups_say(&self, topic: &str, member: &str, count: u64) {
        let address = ServerAddress::new(&self.server.http_url(), Protocol::Http, None).unwrap();
        let mut http = HttpClient::new(address, None).unwrap();
        let path = format!("/groups?topic={topic}");
        within(async {
            loop {
                let answer: Value = http.get_json(&path).await.unwrap();
                let groups = answer["groups"].as_array().unwrap();
                let said = groups.iter().map(|group| group[member].as_u64().unwrap());
                if said.sum::<u64>() == count {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await
        .unwrap();
    }
}
