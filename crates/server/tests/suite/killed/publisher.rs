//! Publishes one event per frame, many frames at a time.

use std::collections::VecDeque;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio_tungstenite::connect_async;
use tokio_tungstenite::tungstenite::Message;

use crate::killed::ledger::Ledger;

const WINDOW: usize = 50;

/// Publishes until everything is answered or the connection is lost.
pub(crate) async fn publish(url: &str, round: u64, count: u64, ledger: &Ledger) {
    let mut ids = ledger.unanswered();
    ids.extend((0..count).map(|number| format!("e{round}-{number}")));
    send_all(url, ids, ledger).await;
}

pub(crate) async fn publish_unanswered(url: &str, ledger: &Ledger) {
    send_all(url, ledger.unanswered(), ledger).await;
}

async fn send_all(url: &str, ids: Vec<String>, ledger: &Ledger) {
    let Ok((mut socket, _)) = connect_async(url).await else { return };
    let mut waiting = VecDeque::new();
    for id in ids {
        ledger.sent(&id);
        let frame =
            json!({"op": "PUBLISH", "topic": "work", "payload": {"n": id}, "opts": {"id": id}});
        waiting.push_back(id);
        if socket.send(Message::text(frame.to_string())).await.is_err() {
            return;
        }
        while waiting.len() >= WINDOW {
            let Some(()) = answered(&mut socket, &mut waiting, ledger).await else { return };
        }
    }
    while !waiting.is_empty() {
        let Some(()) = answered(&mut socket, &mut waiting, ledger).await else { return };
    }
}

async fn answered<S>(socket: &mut S, waiting: &mut VecDeque<String>, ledger: &Ledger) -> Option<()>
where
    S: StreamExt<Item = Result<Message, tokio_tungstenite::tungstenite::Error>> + Unpin,
{
    let Message::Text(text) = socket.next().await?.ok()? else { return Some(()) };
    let answer: Value = serde_json::from_str(&text).unwrap();
    let id = waiting.pop_front().unwrap();
    assert_eq!(answer["op"], "OK", "{answer}");
    assert_eq!(answer["id"], id, "answers come in order");
    ledger.stored(&id, answer["seq"].as_u64().unwrap());
    Some(())
}
