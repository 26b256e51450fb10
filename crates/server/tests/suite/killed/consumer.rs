//! Consumers of one group, each with its moods.

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

/// What a consumer waits to have answered, in order.
enum Asked {
    Ack(String, u64),
    Nack,
}

enum Mood {
    Ack,
    Nack,
    Stall,
    Leave,
}

/// Mixed, so that every run has all of them, and the same each time for the same event and attempt.
fn mood(id: &str, attempt: u64, number: u64) -> Mood {
    if is_doomed(id) {
        return Mood::Nack;
    }
    let salt = attempt * 31 + number;
    let hash =
        id.bytes().fold(salt, |hash, byte| hash.wrapping_mul(0x0100_0000_01B3) ^ u64::from(byte));
    // The last attempts succeed, so that only the doomed ones die.
    match (hash >> 7) % 100 {
        _ if attempt >= MAX_ATTEMPTS - 2 => Mood::Ack,
        0..10 => Mood::Nack,
        10..14 => Mood::Stall,
        14..16 => Mood::Leave,
        _ => Mood::Ack,
    }
}

/// Consumes until the server is gone.
pub(crate) async fn consume(url: &str, number: u64, round: u64, ledger: &Ledger) {
    // Comes back as long as there is somebody to come back to.
    while let Some(socket) = subscribed(url).await {
        let left = serve(socket, ledger, number + round).await;
        if !left {
            return;
        }
    }
}

/// Consumes until the group is done with everything.
pub(crate) async fn drain(process: &Process, ledger: &Ledger) {
    let done = async {
        let mut http = HttpClient::connect_to(process.http).await;
        while http.get("/lag?topic=work&group=g").await.ok()["events"] != 0 {
            sleep(Duration::from_millis(50)).await;
        }
        // What is taken for lent still would come again when its lease is over.
        sleep(2 * ACK_TIMEOUT).await;
    };
    tokio::select! {
        () = consume(&process.url, 0, 0, ledger) => panic!("the server is gone"),
        done = timeout(Duration::from_secs(60), done) => done.expect("the group gets done"),
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

/// Answers whether it left by its own mood.
async fn serve(mut socket: Socket, ledger: &Ledger, number: u64) -> bool {
    let mut asked = VecDeque::new();
    loop {
        let next = timeout(Duration::from_secs(60), next_frame(&mut socket)).await;
        let Ok(Some(frame)) = next else { return false };
        match frame["op"].as_str().unwrap() {
            "OK" => match asked.pop_front().expect("answers are asked for") {
                Asked::Ack(id, attempt) if frame["stale"] != true => ledger.acked(&id, attempt),
                _ => {}
            },
            "EVENT" => {
                let id = frame["event"]["id"].as_str().unwrap().to_owned();
                let seq = frame["event"]["seq"].as_u64().unwrap();
                let attempt = frame["ctx"]["attempt"].as_u64().unwrap();
                ledger.delivered(&id, seq, attempt);
                let which = json!({"topic": "work", "group": "g", "id": id});
                let mut answer = which.clone();
                match mood(&id, attempt, number) {
                    Mood::Ack => {
                        answer["op"] = "ACK".into();
                        asked.push_back(Asked::Ack(id, attempt));
                    }
                    Mood::Nack => {
                        answer["op"] = "NACK".into();
                        answer["delay_ms"] = (attempt * 10).into();
                        answer["reason"] = "in no mood".into();
                        asked.push_back(Asked::Nack);
                    }
                    Mood::Stall => continue,
                    Mood::Leave => return true,
                }
                if socket.send(Message::text(answer.to_string())).await.is_err() {
                    return false;
                }
            }
            other => panic!("{other}: {frame}"),
        }
    }
}

/// Alone in a group of its own, and always in time: nothing is ever given back, so that everything
/// comes in order. Ends with the connection, or with event `last`.
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

/// The ids of the events that became dead letters.
pub(crate) async fn dead_letters(url: &str, expected: usize) -> Vec<String> {
    let (mut socket, _) = connect_async(url).await.unwrap();
    let frame = json!({"op": "SUBSCRIBE", "topic": "dlq.work", "group": "undertaker",
        "opts": {"from": "earliest", "maxInFlight": 10_000}});
    socket.send(Message::text(frame.to_string())).await.unwrap();
    let mut ids = Vec::new();
    // Waits a little longer than for those that have to come: one too many is a fault.
    loop {
        let limit = Duration::from_millis(if ids.len() < expected { 20_000 } else { 1000 });
        let Ok(Some(frame)) = timeout(limit, next_frame(&mut socket)).await else { return ids };
        if frame["op"] == "EVENT" {
            let letter = &frame["event"]["payload"];
            assert_eq!((&letter["topic"], &letter["group"]), (&json!("work"), &json!("g")));
            assert_eq!(letter["attempts"], MAX_ATTEMPTS, "{letter}");
            ids.push(letter["original"]["id"].as_str().unwrap().to_owned());
        }
    }
}
