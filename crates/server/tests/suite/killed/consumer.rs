//! Consumers of one group that behave well, badly or not at all.

use std::collections::VecDeque;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use crate::http::client::HttpClient;
use crate::killed::ledger::{Ledger, MAX_ATTEMPTS, is_doomed};
use crate::killed::process::Process;

const ACK_TIMEOUT: Duration = Duration::from_millis(400);

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// A request without an answer yet.
enum Request {
    Ack(String, u64),
    Nack,
}

enum Behaviour {
    Ack,
    Nack,
    Stall,
    Leave,
}

/// A mix of all behaviours, deterministic for the same event and attempt.
fn behaviour(id: &str, attempt: u64, number: u64) -> Behaviour {
    if is_doomed(id) {
        return Behaviour::Nack;
    }
    let salt = attempt * 31 + number;
    let hash =
        id.bytes().fold(salt, |hash, byte| hash.wrapping_mul(0x0100_0000_01B3) ^ u64::from(byte));
    // The last attempts succeed, so that only doomed events become dead letters.
    match (hash >> 7) % 100 {
        _ if attempt >= MAX_ATTEMPTS - 2 => Behaviour::Ack,
        0..10 => Behaviour::Nack,
        10..14 => Behaviour::Stall,
        14..16 => Behaviour::Leave,
        _ => Behaviour::Ack,
    }
}

/// Consumes until the server is killed.
pub(crate) async fn consume(url: &str, number: u64, round: u64, ledger: &Ledger) {
    while let Some(socket) = subscribed(url).await {
        let left = serve(socket, ledger, number + round).await;
        if !left {
            return;
        }
    }
}

/// Consumes until the group has no lag.
pub(crate) async fn drain(process: &Process, ledger: &Ledger) {
    let done = async {
        let mut http = HttpClient::connect_to(process.http).await;
        while http.get("/lag?topic=work&group=g").await.ok()["events"] != 0 {
            sleep(Duration::from_millis(50)).await;
        }
        // An event that is wrongly considered leased would be redelivered after its deadline.
        sleep(2 * ACK_TIMEOUT).await;
    };
    tokio::select! {
        () = consume(&process.url, 0, 0, ledger) => panic!("the server was killed"),
        done = timeout(Duration::from_secs(60), done) => done.expect("the group finishes"),
    }
}

async fn subscribed(url: &str) -> Option<Socket> {
    let opts = json!({"from": "earliest", "maxInFlight": 40,
        "ackTimeoutMs": ACK_TIMEOUT.as_millis(), "maxAttempts": MAX_ATTEMPTS});
    subscribed_to(url, "g", &opts).await
}

async fn subscribed_to(url: &str, group: &str, opts: &Value) -> Option<Socket> {
    let (mut socket, _) = connect_async(url).await.ok()?;
    let frame = json!({"op": "SUBSCRIBE", "topic": "work", "group": group, "opts": opts});
    socket.send(Message::text(frame.to_string())).await.ok()?;
    let answer = next_frame(&mut socket).await?;
    assert_eq!(answer["op"], "OK", "{answer}");
    Some(socket)
}

async fn next_frame(socket: &mut Socket) -> Option<Value> {
    loop {
        match socket.next().await?.ok()? {
            Message::Text(text) => return Some(serde_json::from_str(&text).unwrap()),
            Message::Close(_) => return None,
            _ => {}
        }
    }
}

/// Returns `true` if the consumer left on its own.
async fn serve(mut socket: Socket, ledger: &Ledger, number: u64) -> bool {
    let mut requests = VecDeque::new();
    loop {
        let next = timeout(Duration::from_secs(60), next_frame(&mut socket)).await;
        let Ok(Some(frame)) = next else { return false };
        match frame["op"].as_str().unwrap() {
            "OK" => match requests.pop_front().expect("an answer belongs to a request") {
                Request::Ack(id, attempt) if frame["stale"] != true => ledger.acked(&id, attempt),
                _ => {}
            },
            "EVENT" => {
                let id = frame["event"]["id"].as_str().unwrap().to_owned();
                let seq = frame["event"]["seq"].as_u64().unwrap();
                let attempt = frame["ctx"]["attempt"].as_u64().unwrap();
                ledger.delivered(&id, seq, attempt);
                let which = json!({"topic": "work", "group": "g", "id": id});
                let mut answer = which.clone();
                match behaviour(&id, attempt, number) {
                    Behaviour::Ack => {
                        answer["op"] = "ACK".into();
                        requests.push_back(Request::Ack(id, attempt));
                    }
                    Behaviour::Nack => {
                        answer["op"] = "NACK".into();
                        answer["delay_ms"] = (attempt * 10).into();
                        answer["reason"] = "rejected at random".into();
                        requests.push_back(Request::Nack);
                    }
                    Behaviour::Stall => continue,
                    Behaviour::Leave => return true,
                }
                if socket.send(Message::text(answer.to_string())).await.is_err() {
                    return false;
                }
            }
            other => panic!("{other}: {frame}"),
        }
    }
}

/// Consumes alone in its own group and always acknowledges in time, so that everything is delivered
/// in order. Ends with the connection, or with event `last`.
pub(crate) async fn observe(url: &str, last: Option<u64>, ledger: &Ledger) {
    let opts = json!({"from": "earliest", "maxInFlight": 500, "maxAttempts": 1000});
    let Some(mut socket) = subscribed_to(url, "observer", &opts).await else { return };
    let mut newest = 0;
    let limit = Duration::from_secs(60);
    while last.is_none_or(|last| !ledger.has_observed(last)) {
        let Ok(Some(frame)) = timeout(limit, next_frame(&mut socket)).await else { return };
        if frame["op"] != "EVENT" {
            continue;
        }
        let seq = frame["event"]["seq"].as_u64().unwrap();
        assert!(seq > newest, "{seq} came after {newest}");
        newest = seq;
        ledger.observed(seq);
        let ack =
            json!({"op": "ACK", "topic": "work", "group": "observer", "id": frame["event"]["id"]});
        if socket.send(Message::text(ack.to_string())).await.is_err() {
            return;
        }
    }
}

/// Returns the ids of the events that became dead letters.
pub(crate) async fn dead_letters(url: &str, expected: usize) -> Vec<String> {
    let (mut socket, _) = connect_async(url).await.unwrap();
    let frame = json!({"op": "SUBSCRIBE", "topic": "dlq.work", "group": "dead-letters",
        "opts": {"from": "earliest", "maxInFlight": 10_000}});
    socket.send(Message::text(frame.to_string())).await.unwrap();
    let mut ids = Vec::new();
    // Waits a little longer than for the expected ones, to notice one too many.
    loop {
        let limit = Duration::from_millis(if ids.len() < expected { 20_000 } else { 1000 });
        let Ok(Some(frame)) = timeout(limit, next_frame(&mut socket)).await else { return ids };
        if frame["op"] == "EVENT" {
            let letter = &frame["event"]["payload"];
            assert_eq!((&letter["topic"], &letter["group"]), (&json!("work"), &json!("g")));
            // Deliveries that a killed server took back count as well, but are no failures.
            assert!(letter["attempts"].as_u64() >= Some(MAX_ATTEMPTS), "{letter}");
            ids.push(letter["original"]["id"].as_str().unwrap().to_owned());
        }
    }
}
