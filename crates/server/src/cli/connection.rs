//! A WebSocket connection to a running server, for the commands that use the gateway.

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use prombus_client::transport::{WebSocket, WebSocketError, may_reconnect, open_websocket};
use prombus_proto::frame::{Auth, EndReason, Outcome, ServerFrame, Token};
use prombus_proto::{ClientFrame, ClientOp, ErrorCode, Group, Topic};
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

use super::server_arguments::GatewayArguments;

/// Time limit of the closing handshake.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a connection failed, or a request on it.
#[derive(Debug, Error)]
pub(super) enum ConnectionError {
    #[error("{0}")]
    Arguments(String),
    #[error(transparent)]
    Unreachable(#[from] WebSocketError),
    #[error("{code}: {msg}")]
    Refused { code: ErrorCode, msg: String, retry_after: Option<Duration> },
    #[error("the server closed the connection: {code} {reason}")]
    Closed { code: u16, reason: String },
    #[error("connection lost: {0}")]
    Lost(String),
    #[error("the subscription to {topic} as {group} ended: {reason}")]
    Ended { topic: Topic, group: Group, reason: EndReason },
}

impl ConnectionError {
    /// Returns `true` if another connection may succeed.
    pub(super) const fn may_reconnect(&self, has_token: bool) -> bool {
        match self {
            Self::Unreachable(error) => error.is_retryable(),
            Self::Refused { code, .. } => code.is_retryable(),
            Self::Closed { code, .. } => may_reconnect(*code, has_token),
            Self::Lost(_) => true,
            Self::Arguments(_) | Self::Ended { .. } => false,
        }
    }

    /// Returns how long the server asks to wait.
    pub(super) const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

/// An open connection, authenticated if there is a token.
pub(super) struct Connection {
    /// To the writer task: a server that is slow to read must not stop this side from reading.
    outgoing: mpsc::UnboundedSender<Message>,
    writer: JoinHandle<()>,
    incoming: SplitStream<WebSocket>,
}

impl Connection {
    pub(super) async fn open(server: &GatewayArguments) -> Result<Self, ConnectionError> {
        let endpoint = server.endpoint().map_err(ConnectionError::Arguments)?;
        let address = endpoint.gateway().map_err(ConnectionError::Arguments)?;
        let socket = open_websocket(&address).await?;
        let (sink, incoming) = socket.split();
        let (outgoing, to_write) = mpsc::unbounded_channel();
        let writer = tokio::spawn(write(sink, to_write));
        let mut connection = Self { outgoing, writer, incoming };
        if let Some(token) = endpoint.token() {
            let auth = Auth { token: Some(Token::new(token.to_owned())) };
            connection.request(ClientOp::Auth(auth)).await?;
        }
        Ok(connection)
    }

    /// Sends a frame without waiting for its answer.
    pub(super) fn send(&self, op: ClientOp) {
        let mut json = Vec::new();
        ClientFrame { corr: None, op }.write(&mut json);
        let text = String::from_utf8(json).expect("frames are UTF-8");
        // If the writer has stopped, the next read returns the reason.
        let _ = self.outgoing.send(Message::text(text));
    }

    /// Sends a frame and waits for its answer. For connections without open subscriptions, where no other
    /// frame can arrive.
    pub(super) async fn request(&mut self, op: ClientOp) -> Result<Outcome, ConnectionError> {
        self.send(op);
        match self.next().await? {
            ServerFrame::Ok { outcome, .. } => Ok(outcome),
            ServerFrame::Err { code, msg, retry_after_ms, .. } => {
                Err(refused(code, msg, retry_after_ms))
            }
            ServerFrame::Event { topic, .. } => {
                let reason = format!("expected an answer, received an event of {topic}");
                Err(ConnectionError::Lost(reason))
            }
            ServerFrame::Ended { topic, reason, .. } => {
                let reason =
                    format!("expected an answer, but the subscription to {topic} ended: {reason}");
                Err(ConnectionError::Lost(reason))
            }
        }
    }

    /// Receives the next frame. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<ServerFrame, ConnectionError> {
        loop {
            match self.incoming.next().await {
                Some(Ok(Message::Text(text))) => {
                    let frame = ServerFrame::parse(&Bytes::from(text));
                    return frame.map_err(|error| {
                        ConnectionError::Lost(format!("the server sent an invalid frame: {error}"))
                    });
                }
                Some(Ok(Message::Close(Some(close)))) => {
                    let (code, reason) = (close.code.into(), close.reason.to_string());
                    return Err(ConnectionError::Closed { code, reason });
                }
                // The library answers pings; the protocol has no other messages.
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(ConnectionError::Lost(error.to_string())),
                None => return Err(ConnectionError::Lost("closed by the server".to_owned())),
            }
        }
    }

    /// Closes the connection after everything queued has been sent.
    pub(super) async fn close(mut self) {
        drop(self.outgoing);
        let handshake = async {
            // A writer that failed has nothing left to send.
            let _ = self.writer.await;
            while let Some(Ok(_)) = self.incoming.next().await {}
        };
        // The server may never answer.
        let _ = timeout(CLOSE_TIMEOUT, handshake).await;
    }
}

pub(super) fn refused(
    code: ErrorCode,
    msg: String,
    retry_after_ms: Option<u64>,
) -> ConnectionError {
    let retry_after = retry_after_ms.map(Duration::from_millis);
    ConnectionError::Refused { code, msg, retry_after }
}

async fn write(
    mut sink: SplitSink<WebSocket, Message>,
    mut messages: mpsc::UnboundedReceiver<Message>,
) {
    while let Some(message) = messages.recv().await {
        // The reader hits the same failure and reports it.
        if sink.feed(message).await.is_err() {
            return;
        }
        if messages.is_empty() && sink.flush().await.is_err() {
            return;
        }
    }
    let _ = sink.close().await;
}
