//! A server from the built binary whose log and metrics are read.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::cli::server::{Server, serve};
use crate::gateway::client::Client;
use crate::http::client::HttpClient;
use crate::http::metrics::scrape;

/// Only a server that hangs takes this long to write a line.
const HANG: Duration = Duration::from_secs(60);

pub(crate) struct Observed {
    pub(crate) server: Server,
    log: Receiver<String>,
    /// Sent with scrapes.
    token: Option<&'static str>,
}

impl Observed {
    /// Starts a server with these settings. Rate limits are off unless enabled.
    pub(crate) fn start(arguments: &[&str], settings: &[&str]) -> Self {
        let mut command = serve();
        command.args(arguments).args(["--set", "log.format=json"]);
        for setting in settings {
            command.args(["--set", setting]);
        }
        let (server, written) = Server::spawn_with_log(&mut command);
        let (lines, log) = channel();
        thread::spawn(move || {
            // When nobody listens any more, the rest is read all the same: the server must not block.
            written.lines().for_each(|line| drop(lines.send(line)));
        });
        Self { server, log, token: None }
    }

    pub(crate) fn with_token(self, token: &'static str) -> Self {
        Self { token: Some(token), ..self }
    }

    /// Waits for the next line whose message starts like this. Lines before it are skipped.
    pub(crate) fn line(&self, message: &str) -> Value {
        loop {
            let line = self.log.recv_timeout(HANG);
            let line = line.unwrap_or_else(|_| panic!("the log has no line {message:?}"));
            let parsed: Value = serde_json::from_str(&line).unwrap();
            if parsed["message"].as_str().unwrap_or_default().starts_with(message) {
                return parsed;
            }
        }
    }

    /// Waits until the counts of the lines whose message starts like this add up to `count`. Returns the lines.
    pub(crate) fn lines_about(&self, message: &str, count: u64) -> Vec<Value> {
        let (mut lines, mut seen) = (Vec::new(), 0);
        while seen < count {
            let line = self.line(message);
            seen += line["count"].as_u64().unwrap();
            lines.push(line);
        }
        assert_eq!(seen, count, "{lines:?}");
        lines
    }

    pub(crate) fn ws(&self) -> SocketAddr {
        address(&self.server.url)
    }

    pub(crate) fn http(&self) -> SocketAddr {
        address(&self.server.http)
    }

    pub(crate) async fn connect(&self) -> Client {
        Client::connect(self.ws()).await
    }

    pub(crate) async fn client(&self) -> HttpClient {
        let client = HttpClient::connect_to(self.http()).await;
        match self.token {
            Some(token) => client.with_token(token),
            None => client,
        }
    }

    /// The metrics, by series.
    pub(crate) async fn metrics(&self) -> BTreeMap<String, f64> {
        scrape(&mut self.client().await).await.into_iter().collect()
    }
}

fn address(url: &str) -> SocketAddr {
    let (_, rest) = url.trim().split_once("://").unwrap();
    rest.trim_end_matches('/').parse().unwrap()
}
