//! A client that reads nothing: closed in time, and what it had goes to others.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use prombus_server::config::{Config, Sources};
use prombus_server::server::Server;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

/// Only a server that hangs takes so long.
const PATIENCE: Duration = Duration::from_secs(60);
/// More than the system's own buffers take.
const EVENTS: usize = 320;
const EVENT_BYTES: usize = 100_000;

#[tokio::test]
async fn is_closed_when_its_time_is_over_although_nothing_else_happens() {
    let set = [
        "server.engine=memory",
        "server.ws=127.0.0.1:0",
        "limits.enabled=false",
        "gateway.slow_consumer_timeout_ms=100",
        // No ping wakes the session.
        "gateway.ping_interval_ms=3600000",
    ];
    let sources = Sources { set: set.map(str::to_owned).into(), ..Sources::default() };
    let server = Server::start(&Config::load(&sources).unwrap()).await.unwrap();
    let mut stuck = connect(server.ws()).await;
    // Only the end of the connection ends these leases.
    let opts = r#"{"maxInFlight":10000,"ackTimeoutMs":43200000}"#;
    stuck.send(subscribe(opts)).await.unwrap();
    assert_eq!(text(&mut stuck).await, r#"{"op":"OK"}"#);

    let mut other = connect(server.ws()).await;
    let payload = "x".repeat(EVENT_BYTES);
    for _ in 0..EVENTS {
        let frame = format!(r#"{{"op":"PUBLISH","topic":"t","payload":"{payload}"}}"#);
        other.send(Message::text(frame)).await.unwrap();
        assert!(text(&mut other).await.starts_with(r#"{"op":"OK""#));
    }
    other.send(subscribe(opts)).await.unwrap();
    assert_eq!(text(&mut other).await, r#"{"op":"OK"}"#);
    while !text(&mut other).await.contains(r#""event":{"seq":1,"#) {}
    drop(stuck);
    server.stop().await.unwrap();
}

fn subscribe(opts: &str) -> Message {
    Message::text(format!(r#"{{"op":"SUBSCRIBE","topic":"t","group":"g","opts":{opts}}}"#))
}

async fn connect(address: SocketAddr) -> WebSocketStream<TcpStream> {
    let stream = TcpStream::connect(address).await.expect("it listens");
    let socket = tokio_tungstenite::client_async(format!("ws://{address}/"), stream).await;
    socket.expect("it becomes a WebSocket").0
}

async fn text(socket: &mut WebSocketStream<TcpStream>) -> String {
    let message = timeout(PATIENCE, socket.next()).await.expect("something comes");
    let message = message.expect("it is open").expect("it is a WebSocket");
    message.into_text().expect("it is text").to_string()
}
