//! The end of the server.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

use crate::gateway::client::{Client, Received, about, parsed};
use crate::gateway::running::{started, started_with_faults};
use crate::store::Store;

/// What a stop may take.
const TEN_SECONDS: Duration = Duration::from_secs(10);

#[tokio::test]
async fn who_has_events_may_finish_them_and_new_work_is_refused() {
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
    assert_eq!(client.ask(about("ACK", &event)).await, r#"{"op":"OK"}"#);
    assert_eq!(client.close_code().await, 1001);
    drop(client);
    timeout(TEN_SECONDS, stopped).await.unwrap().unwrap().unwrap();
    drop(engine);
}

#[tokio::test]
async fn answers_that_are_due_are_still_sent() {
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
async fn clients_that_do_nothing_do_not_hold_it_up() {
    let running = started(&[]).await;
    let mut idle = running.connect().await;
    idle.subscribe("t", "g", json!({})).await;
    let other = running.connect().await;
    let no_websocket = running.tcp().await;
    let address = running.address();
    timeout(TEN_SECONDS, running.server.stop()).await.expect("it stops in time").unwrap();
    assert!(tokio::net::TcpStream::connect(address).await.is_err(), "nobody listens any more");
    assert_eq!(idle.close_code().await, 1001);
    drop((other, no_websocket));
}

/// A client that never pauses between its frames must not keep the server from seeing that it has
/// to stop.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_never_stops_sending_does_not_hold_it_up() {
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

/// The built binary, told to end by the system.
#[tokio::test]
async fn the_binary_ends_by_sigterm_with_clients_that_do_nothing() {
    let store = Store::new();
    let mut child = Command::new(env!("CARGO_BIN_EXE_prombus"))
        .args(["--ws", "127.0.0.1:0", "--http", "127.0.0.1:0"])
        .args(store.arguments())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let address = loop {
        let mut line = String::new();
        assert_ne!(out.read_line(&mut line).unwrap(), 0, "it ended early");
        if let Some(url) = line.trim_end().strip_prefix("WebSocket gateway: ws://") {
            break url.trim_end_matches('/').parse().unwrap();
        }
    };
    let mut client = Client::connect(address).await;
    client.subscribe("t", "g", json!({})).await;
    client.publish("t", json!(1)).await;
    // What a stopping server has not yet lent stays for the next subscriber: so this comes first.
    assert_eq!(client.event().await["event"]["seq"], 1);
    let begun = Instant::now();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let ended = tokio::task::spawn_blocking(move || {
        let mut said = String::new();
        out.read_to_string(&mut said).unwrap();
        (child.wait().unwrap(), said)
    });
    let (status, said) = timeout(Duration::from_secs(20), ended).await.unwrap().unwrap();
    assert!(status.success() && said.contains("everything is stored"), "{status}: {said}");
    assert!(begun.elapsed() < TEN_SECONDS, "{:?}", begun.elapsed());
    assert_eq!(client.close_code().await, 1001);
}
