//! Limits of connections, health checks above them, and strangers without a token.

use std::net::Ipv4Addr;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::gateway::client::Client;
use crate::gateway::running::{Running, started};
use crate::http::client::{HttpClient, connect_from};
use crate::http::metrics::scrape;

const HANG_TIMEOUT: Duration = Duration::from_secs(20);
const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const TOKEN: &str = r#"auth.tokens=[{token="known-token-12345",scopes=["publish:**","admin"]}]"#;

/// Returns the status of a request on a connection of its own.
async fn status(running: &Running, path: &str) -> u16 {
    HttpClient::connect(running).await.get(path).await.status.as_u16()
}

/// Repeats a request on one connection until the server closes it.
async fn until_closed(mut stream: TcpStream, path: &str) {
    let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", stream.peer_addr().unwrap());
    let closed = async {
        let mut part = vec![0; 64 << 10];
        loop {
            if stream.write_all(request.as_bytes()).await.is_err()
                || matches!(stream.read(&mut part).await, Ok(0) | Err(_))
            {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(HANG_TIMEOUT, closed).await.expect("the connection is never closed");
}

#[tokio::test]
async fn a_connection_that_presents_no_token_in_time_is_closed_whatever_it_requests() {
    let running = started(&[TOKEN, "gateway.auth_timeout_ms=300"]).await;
    let (http, ws) = (running.server.http(), running.address());
    let mut known = HttpClient::connect(&running).await.with_token("known-token-12345");
    known.get("/topics").await.ok();
    for (address, path) in [(http, "/healthz"), (http, "/topics"), (http, "/docs"), (ws, "/x")] {
        until_closed(TcpStream::connect(address).await.unwrap(), path).await;
    }
    // The same connection as before: this client does not reconnect.
    known.get("/topics").await.ok();
}

#[tokio::test]
async fn a_token_that_is_refused_is_no_token() {
    let running = started(&[TOKEN, "gateway.auth_timeout_ms=300"]).await;
    let mut stream = TcpStream::connect(running.server.http()).await.unwrap();
    let host = running.server.http();
    let request =
        format!("GET /topics HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer guess\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    until_closed(stream, "/topics").await;
}

#[tokio::test]
async fn health_checks_are_answered_when_every_place_is_taken() {
    let running = started(&["gateway.max_connections=1"]).await;
    let mut first = HttpClient::connect(&running).await;
    first.get("/topics").await.ok();
    let mut strangers = Vec::new();
    for _ in 0..60 {
        // They hold what is kept for health checks, if they can.
        strangers.push(TcpStream::connect(running.server.http()).await.unwrap());
    }
    for path in ["/healthz", "/readyz"] {
        let reply = HttpClient::connect(&running).await.get(path).await;
        assert_eq!(reply.ok(), json!({"status": "ok"}));
        assert_eq!(reply.header("connection"), Some("close"));
    }
    assert_eq!(status(&running, "/metrics").await, 200, "the machine itself may scrape");
    for path in ["/topics", "/replay?topic=t", "/docs", "/ws"] {
        let reply = HttpClient::connect(&running).await.get(path).await;
        assert_eq!(reply.refused(503, "rate_limited"), "too many connections", "{path}");
        assert_eq!(reply.header("connection"), Some("close"));
    }
    // All of them are surplus, and closed although they asked for nothing.
    for mut stranger in strangers {
        let read = timeout(HANG_TIMEOUT, stranger.read(&mut [0; 1])).await;
        assert!(matches!(read.expect("it stays open"), Ok(0) | Err(_)));
    }
    first.get("/topics").await.ok();
}

#[tokio::test]
async fn one_address_cannot_take_every_place() {
    let set = ["gateway.max_connections=100", "gateway.max_connections_per_address=3"];
    let running = started(&set).await;
    let mut first = HttpClient::connect(&running).await;
    first.get("/topics").await.ok();
    let mut socket = running.connect().await;
    let second = HttpClient::connect(&running).await;
    for _ in 0..5 {
        let reply = HttpClient::connect(&running).await.get("/topics").await;
        let message = reply.refused(503, "rate_limited");
        assert_eq!(message, "too many connections from this address");
        assert_eq!(status(&running, "/healthz").await, 200);
    }
    let mut other = HttpClient::connect_from(&running, OTHER).await;
    other.get("/topics").await.ok();
    let stream = connect_from(running.address(), OTHER).await;
    Client::over(stream, &format!("ws://{}/", running.address())).await.assert_lives().await;
    socket.assert_lives().await;
    let samples = scrape(&mut other).await;
    assert!(samples["prombus_connections_refused_total{limit=\"address\"}"] >= 5.0);
    assert_eq!(samples["prombus_connections_refused_total{limit=\"total\"}"], 0.0);
    drop(second);
    let is_served = async {
        while status(&running, "/topics").await != 200 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(HANG_TIMEOUT, is_served).await.expect("the place is not given back");
}
