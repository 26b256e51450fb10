//! A server in the test process, and helpers for assertions.

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
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

/// A server in this process, on free ports.
pub(crate) struct TestServer {
    pub(crate) inner: Server,
}

/// Starts a server in memory with these settings and, by default, without rate limits.
pub(crate) async fn start(set: &[&str]) -> TestServer {
    start_with_engine(memory(), set).await
}

/// Starts a server whose storage fails on demand.
pub(crate) async fn start_with_faults(set: &[&str]) -> (TestServer, Faults) {
    let faults = Faults::none();
    let engine = Arc::new(FaultyEngine::new(memory(), faults.clone()));
    (start_with_engine(engine, set).await, faults)
}

fn memory() -> Arc<dyn Engine> {
    Arc::new(MemoryEngine::new(Arc::new(SystemClock)))
}

pub(crate) async fn start_with_engine(engine: Arc<dyn Engine>, set: &[&str]) -> TestServer {
    let defaults = [
        "server.ws=127.0.0.1:0",
        "server.http=127.0.0.1:0",
        "limits.enabled=false",
        // For tests that lose one connection after another.
        "groups.retry.first_ms=10",
        "groups.retry.max_ms=100",
    ];
    let set = defaults.iter().chain(set).map(|&text| text.to_owned()).collect();
    let sources = Sources { set, ..Sources::default() };
    let config = Config::load(&sources).unwrap_or_else(|error| panic!("{error}"));
    let threads = Threads::start(2).unwrap();
    TestServer { inner: Server::start_over(engine, threads, &config).await.unwrap() }
}

impl TestServer {
    pub(crate) fn ws(&self) -> SocketAddr {
        self.inner.ws()
    }

    pub(crate) fn builder(&self) -> Builder {
        client_builder(&self.inner.ws_url()).http(self.inner.http_url())
    }

    pub(crate) async fn connect(&self) -> Client {
        self.builder().connect().await.unwrap()
    }

    /// Returns the events of a topic.
    pub(crate) async fn stored(&self, topic: &str) -> Vec<Event<Value>> {
        self.stored_as(topic).await
    }

    async fn stored_as<T: DeserializeOwned>(&self, topic: &str) -> Vec<Event<T>> {
        let client = self.connect().await;
        let mut events = client.export(topic).stream().unwrap();
        let mut stored = Vec::new();
        while let Some(event) = events.next().await {
            stored.push(event.unwrap());
        }
        client.close().await;
        stored
    }

    /// Returns the payloads of a topic, byte for byte.
    pub(crate) async fn payloads_as_text(&self, topic: &str) -> Vec<String> {
        let events = self.stored_as::<Box<RawValue>>(topic).await;
        events.into_iter().map(|event| event.payload.get().to_owned()).collect()
    }

    pub(crate) async fn payloads(&self, topic: &str) -> Vec<Value> {
        self.stored(topic).await.into_iter().map(|event| event.payload).collect()
    }
}

/// Returns a builder with a short back-off.
pub(crate) fn client_builder(url: &str) -> Builder {
    Client::builder(url).back_off(Duration::from_millis(2), Duration::from_millis(20))
}

/// What handlers have recorded, in order. Clones share it.
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

    /// Waits for `count` entries and returns all of them.
    pub(crate) async fn wait_for_len(&self, count: usize) -> Vec<T> {
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
        .unwrap_or_else(|_| panic!("waiting for {count} entries, got {:?}", self.all()))
    }
}

/// Waits with a timeout that is long enough for a slow machine.
pub(crate) async fn within<F: Future>(future: F) -> Result<F::Output, tokio::time::error::Elapsed> {
    tokio::time::timeout(Duration::from_secs(60), future).await
}

impl TestServer {
    /// Waits until the topic has `count` events.
    pub(crate) async fn until_stored(&self, topic: &str, count: u64) {
        let topic = Topic::new(topic).unwrap();
        within(async {
            while self.inner.engine().bounds(&topic).await.unwrap().next.0 <= count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await
        .unwrap();
    }

    /// Waits until `count` events of the topic are in flight, over all groups.
    pub(crate) async fn until_in_flight(&self, topic: &str, count: u64) {
        self.until_groups_report(topic, "in_flight", count).await;
    }

    /// Waits until the lag of all groups is `count` events.
    pub(crate) async fn until_lag(&self, topic: &str, count: u64) {
        self.until_groups_report(topic, "lag_events", count).await;
    }

    async fn until_groups_report(&self, topic: &str, member: &str, count: u64) {
        let address = ServerAddress::new(&self.inner.http_url(), Protocol::Http, None).unwrap();
        let mut http = HttpClient::new(address, None).unwrap();
        let path = format!("/groups?topic={topic}");
        within(async {
            loop {
                let answer: Value = http.get_json(&path).await.unwrap();
                let groups = answer["groups"].as_array().unwrap();
                let reported = groups.iter().map(|group| group[member].as_u64().unwrap());
                if reported.sum::<u64>() == count {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await
        .unwrap();
    }
}
