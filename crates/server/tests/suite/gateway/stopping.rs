//! Shutdown.

use std::io::Read;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

use crate::gateway::client::{Client, Received, frame_for, parsed};
use crate::gateway::running::{started, started_with_faults};
use crate::ready::{self, Ready};
use crate::store::Store;

/// The limit of a shutdown.
const TEN_SECONDS: Duration = Duration::from_secs(10);

#[tokio::test]
async fn leases_can_be_settled_and_new_work_is_refused() {
    let running = started(&[]).await;
    let mut client = running.connect().await;
    client.subscribe("t", "g", json!({})).await;
    client.publish("t", json!(1)).await;
    let event = client.event().await;
    let engine = running.server.engine().clone();
    let stopped = tokio::spawn(running.server.stop());
    tokio::task::yield_now().await;
    for frame in [
        json!({"op": "PUBLISH", "topic": "t", "payload": 2}),
        json!({"op": "SUBSCRIBE", "topic": "t", "group": "h"}),
        json!({"op": "MARK", "topic": "t", "group": "g", "id": "x"}),
    ] {
        assert_eq!(
            client.ask(frame).await,
            r#"{"op":"ERR","code":"shutting_down","msg":"the server is shutting down"}"#
        );
    }
    assert_eq!(client.ask(frame_for("ACK", &event)).await, r#"{"op":"OK"}"#);
    assert_eq!(client.close_code().await, 1001);
    drop(client);
    timeout(TEN_SECONDS, stopped).await.unwrap().unwrap().unwrap();
    drop(engine);
}

#[tokio::test]
async fn pending_answers_are_sent() {
    let (running, faults) = started_with_faults(&[]).await;
    let mut client = running.connect().await;
    faults.shut_gate();
    client.send_all((0..100).map(|n| json!({"op": "PUBLISH", "topic": "t", "payload": n}))).await;
    faults.until_waiting(1).await;
    let stopped = tokio::spawn(running.server.stop());
    tokio::time::sleep(Duration::from_millis(200)).await;
    faults.open_gate();
    for seq in 1..=100 {
        assert_eq!(parsed(&client.answer().await)["seq"], seq);
    }
    assert_eq!(client.receive().await, Received::Closed(1001));
    drop(client);
    timeout(TEN_SECONDS, stopped).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn idle_clients_do_not_delay_it() {
    let running = started(&[]).await;
    let mut idle = running.connect().await;
    idle.subscribe("t", "g", json!({})).await;
    let other = running.connect().await;
    let no_websocket = running.tcp().await;
    let address = running.address();
    timeout(TEN_SECONDS, running.server.stop()).await.expect("it stops in time").unwrap();
    assert!(tokio::net::TcpStream::connect(address).await.is_err(), "the port is closed");
    assert_eq!(idle.close_code().await, 1001);
    drop((other, no_websocket));
}

/// A client that never pauses between frames must not keep its session from seeing the shutdown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_never_stops_sending_does_not_delay_it() {
    use futures_util::{SinkExt, StreamExt};
    let running = started(&[]).await;
    let client = running.connect().await;
    let (mut sender, mut receiver) = client.socket.split();
    let sending = tokio::spawn(async move {
        let frame = json!({"op": "NOPE"}).to_string();
        loop {
            for _ in 0..500 {
                if sender.feed(Message::text(frame.as_str())).await.is_err() {
                    return;
                }
            }
            if sender.flush().await.is_err() {
                return;
            }
        }
    });
    let reading = tokio::spawn(async move {
        let mut last = None;
        while let Some(Ok(message)) = receiver.next().await {
            if let Message::Close(Some(close)) = message {
                last = Some(u16::from(close.code));
            }
        }
        last
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    timeout(TEN_SECONDS, running.server.stop()).await.expect("it stops in time").unwrap();
    sending.abort();
    assert_eq!(timeout(TEN_SECONDS, reading).await.unwrap().unwrap(), Some(1001));
}

/// The built binary, stopped by a signal.
#[tokio::test]
async fn sigterm_stops_the_binary_with_idle_clients() {
    let store = Store::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_prombus"));
    command.args(["--ws", "127.0.0.1:0", "--http", "127.0.0.1:0"]).args(store.arguments());
    let Ready { mut child, ws, mut log, .. } = ready::start(&mut command);
    let address = ws.trim_start_matches("ws://").trim_end_matches('/').parse().unwrap();
    let mut client = Client::connect(address).await;
    client.subscribe("t", "g", json!({})).await;
    client.publish("t", json!(1)).await;
    // Before the signal: a server that shuts down does not deliver.
    assert_eq!(client.event().await["event"]["seq"], 1);
    let started = Instant::now();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let ended = tokio::task::spawn_blocking(move || {
        let mut said = String::new();
        log.read_to_string(&mut said).unwrap();
        (child.wait().unwrap(), said)
    });
    let (status, said) = timeout(Duration::from_secs(20), ended).await.unwrap().unwrap();
    assert!(status.success() && said.contains("everything is stored"), "{status}: {said}");
    assert!(started.elapsed() < TEN_SECONDS, "{:?}", started.elapsed());
    assert_eq!(client.close_code().await, 1001);
}
