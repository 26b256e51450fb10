//! A consumer that subscribes again and again, until the server is gone.

use std::collections::VecDeque;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::sleep;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use super::ledger::{Ledger, TOPIC};
use super::roles::{Action, Effect, Role, Sent};

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Why a consumer stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Its subscription is over, or it left.
    Subscription,
    Connection,
}

/// Consumes until the server is gone.
pub(crate) async fn consume(url: &str, role: Role, ledger: &Ledger) {
    loop {
        let Ok((mut socket, _)) = connect_async(url).await else { return };
        // It reads what follows only after the ledger knows of the subscription.
        let subscription = {
            let _guard = match role {
                Role::Deleted => Some(ledger.joining.read().await),
                _ => None,
            };
            match subscribe(&mut socket, role).await {
                Some(true) => role.subscribed(ledger),
                Some(false) => {
                    // The group is being deleted.
                    sleep(Duration::from_millis(10)).await;
                    continue;
                }
                None => return,
            }
        };
        let mut consumer =
            Consumer { socket, role, ledger, subscription, requests: VecDeque::new() };
        let end = consumer.run().await;
        for sent in consumer.requests.drain(..) {
            role.answered(ledger, &sent, Effect::Unknown);
        }
        role.unsubscribed(ledger, subscription);
        if end == End::Connection {
            return;
        }
    }
}

/// Returns `false` if the server asks to try again, and `None` if it is gone.
async fn subscribe(socket: &mut Socket, role: Role) -> Option<bool> {
    let frame = json!({"op": "SUBSCRIBE", "topic": TOPIC, "group": role.group(), "opts": {
        "from": "earliest", "maxInFlight": 40,
        // No lease ends by its deadline, and no event fails for good.
        "ackTimeoutMs": 600_000, "maxAttempts": 1000,
    }});
    socket.send(Message::text(frame.to_string())).await.ok()?;
    let answer = next_frame(socket).await?;
    let is_subscribed = answer["op"] == "OK";
    assert!(is_subscribed || answer["code"] == "storage_unavailable", "{answer}");
    Some(is_subscribed)
}

struct Consumer<'a> {
    socket: Socket,
    role: Role,
    ledger: &'a Ledger,
    subscription: u64,
    requests: VecDeque<Sent>,
}

impl Consumer<'_> {
    async fn run(&mut self) -> End {
        loop {
            let Some(frame) = next_frame(&mut self.socket).await else { return End::Connection };
            match frame["op"].as_str().unwrap() {
                "EVENT" => {
                    if self.ledger.random.below(300) == 0 {
                        return End::Subscription;
                    }
                    if !self.delivered(&frame).await {
                        return End::Connection;
                    }
                }
                "ENDED" => {
                    assert_eq!(
                        (self.role, &frame["reason"]),
                        (Role::Deleted, &json!("group_deleted"))
                    );
                    return self.drain_ended().await;
                }
                _ => self.answered(&frame),
            }
        }
    }

    /// Returns `false` if the connection is lost.
    async fn delivered(&mut self, frame: &Value) -> bool {
        assert_eq!(frame["group"], self.role.group(), "{frame}");
        let seq = frame["event"]["seq"].as_u64().unwrap();
        assert_eq!(frame["event"]["id"], format!("e{seq}"), "{frame}");
        let attempt = frame["ctx"]["attempt"].as_u64().unwrap();
        let (action, sent) = self.role.delivered(self.ledger, self.subscription, (seq, attempt));
        let mut answer = json!({"op": "NACK", "topic": TOPIC, "group": self.role.group(),
            "id": frame["event"]["id"]});
        match action {
            Action::Ack => answer["op"] = "ACK".into(),
            Action::Fail => answer["delay_ms"] = 10.into(),
            Action::GiveUp => answer["dead"] = true.into(),
        }
        self.requests.push_back(sent);
        self.socket.send(Message::text(answer.to_string())).await.is_ok()
    }

    fn answered(&mut self, frame: &Value) {
        let sent = self.requests.pop_front().expect("an answer belongs to a request");
        let effect = match (frame["op"].as_str(), frame["code"].as_str()) {
            (Some("OK"), _) if frame["stale"] == true => Effect::None,
            (Some("OK"), _) => Effect::Some,
            (_, Some("not_subscribed")) => Effect::None,
            (_, Some("storage_unavailable")) => Effect::Unknown,
            _ => panic!("{sent:?} was answered {frame}"),
        };
        self.role.answered(self.ledger, &sent, effect);
    }

    /// Nothing is delivered behind the end of a subscription.
    async fn drain_ended(&mut self) -> End {
        let probe = json!({"op": "ACK", "topic": TOPIC, "group": self.role.group(), "id": "x",
            "corr": "probe"});
        if self.socket.send(Message::text(probe.to_string())).await.is_err() {
            return End::Connection;
        }
        loop {
            let Some(frame) = next_frame(&mut self.socket).await else { return End::Connection };
            assert!(frame["op"] == "OK" || frame["op"] == "ERR", "{frame} behind ENDED");
            if frame["corr"] == "probe" {
                assert_eq!(frame["code"], "not_subscribed", "{frame}");
                return End::Subscription;
            }
            self.answered(&frame);
        }
    }
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
