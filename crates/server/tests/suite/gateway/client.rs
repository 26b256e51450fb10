//! The test client: sends frames, and separates answers from events.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

/// Only a server that hangs takes this long.
const HANG: Duration = Duration::from_secs(20);

pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

pub(crate) struct Client {
    pub(crate) socket: WebSocketStream<Box<dyn Stream>>,
    /// Events received while waiting for an answer.
    events: VecDeque<Value>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Received {
    Text(String),
    Closed(u16),
    /// Without a close frame.
    Lost,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).await.unwrap(), &format!("ws://{address}/")).await
    }

    /// With a small receive buffer, so that the server soon notices when the client does not read.
    pub(crate) async fn connect_narrow(address: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(16 << 10).unwrap();
        let stream = socket.connect(address).await.unwrap();
        Self::over(stream, &format!("ws://{address}/")).await
    }

    pub(crate) async fn over(stream: impl Stream + 'static, url: &str) -> Self {
        let stream: Box<dyn Stream> = Box::new(stream);
        let (socket, _) = client_async(url, stream).await.unwrap();
        Self { socket, events: VecDeque::new() }
    }

    pub(crate) async fn send(&mut self, frame: &Value) {
        self.send_text(&frame.to_string()).await;
    }

    pub(crate) async fn send_text(&mut self, frame: &str) {
        self.send_message(Message::text(frame)).await;
    }

    pub(crate) async fn send_message(&mut self, message: Message) {
        self.try_send(message).await.unwrap();
    }

    pub(crate) async fn try_send(&mut self, message: Message) -> Result<(), Error> {
        timeout(HANG, self.socket.send(message)).await.expect("the server does not read")
    }

    /// Sends many frames with one flush.
    pub(crate) async fn send_all(&mut self, frames: impl IntoIterator<Item = Value>) {
        for frame in frames {
            let fed = timeout(HANG, self.socket.feed(Message::text(frame.to_string()))).await;
            fed.expect("the server does not read").unwrap();
        }
        timeout(HANG, self.socket.flush()).await.expect("the server does not read").unwrap();
    }

    /// Returns the next text or close frame. Answers pings.
    pub(crate) async fn receive(&mut self) -> Received {
        timeout(HANG, self.receive_without_timeout()).await.expect("the server sends nothing")
    }

    async fn receive_without_timeout(&mut self) -> Received {
        loop {
            match self.socket.next().await {
                Some(Ok(Message::Text(text))) => return Received::Text(text.to_string()),
                Some(Ok(Message::Close(Some(close)))) => {
                    return Received::Closed(close.code.into());
                }
                Some(Ok(Message::Close(None))) => return Received::Closed(1005),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Received::Lost,
            }
        }
    }

    /// Returns the JSON of the next answer.
    pub(crate) async fn answer(&mut self) -> String {
        loop {
            match self.receive().await {
                Received::Text(text) if text.starts_with(r#"{"op":"EVENT""#) => {
                    self.events.push_back(parsed(&text));
                }
                Received::Text(text) => return text,
                other => panic!("expected an answer: {other:?}"),
            }
        }
    }

    pub(crate) async fn ask(&mut self, frame: Value) -> String {
        self.send(&frame).await;
        self.answer().await
    }

    /// Sends `frame`, which has to be answered with OK.
    pub(crate) async fn ok(&mut self, frame: Value) -> Value {
        let answer = parsed(&self.ask(frame.clone()).await);
        assert_eq!(answer["op"], "OK", "the answer to {frame} is {answer}");
        answer
    }

    pub(crate) async fn publish(&mut self, topic: &str, payload: Value) -> Value {
        self.ok(json!({"op": "PUBLISH", "topic": topic, "payload": payload})).await
    }

    pub(crate) async fn subscribe(&mut self, topic: &str, group: &str, opts: Value) {
        self.ok(json!({"op": "SUBSCRIBE", "topic": topic, "group": group, "opts": opts})).await;
    }

    pub(crate) async fn ack(&mut self, event: &Value) -> Value {
        self.ok(frame_for("ACK", event)).await
    }

    pub(crate) async fn event(&mut self) -> Value {
        if let Some(event) = self.events.pop_front() {
            return event;
        }
        match self.receive().await {
            Received::Text(text) if text.starts_with(r#"{"op":"EVENT""#) => parsed(&text),
            other => panic!("expected an event: {other:?}"),
        }
    }

    /// Returns the next frame, be it an answer or an event.
    pub(crate) async fn next_frame(&mut self) -> Value {
        match self.receive().await {
            Received::Text(text) => parsed(&text),
            other => panic!("expected a frame: {other:?}"),
        }
    }

    /// Returns the next event, or `None` after `time`.
    pub(crate) async fn event_within(&mut self, time: Duration) -> Option<Value> {
        timeout(time, self.event()).await.ok()
    }

    /// Fails if an event arrives within `time`.
    pub(crate) async fn gets_nothing_for(&mut self, time: Duration) {
        let event = self.event_within(time).await;
        assert_eq!(event, None);
    }

    /// Reads until the close frame.
    pub(crate) async fn close_code(&mut self) -> u16 {
        loop {
            match self.receive().await {
                Received::Text(_) => {}
                Received::Closed(code) => return code,
                Received::Lost => panic!("the connection was lost without a close frame"),
            }
        }
    }

    /// Fails if the connection does not work any more.
    pub(crate) async fn assert_lives(&mut self) {
        self.publish("signs-of-life", json!(1)).await;
    }
}

/// Returns a frame for the delivered event.
pub(crate) fn frame_for(op: &str, delivery: &Value) -> Value {
    json!({
        "op": op,
        "topic": delivery["topic"],
        "group": delivery["group"],
        "id": delivery["event"]["id"],
    })
}

pub(crate) fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

pub(crate) fn payload(delivery: &Value) -> &Value {
    &delivery["event"]["payload"]
}
