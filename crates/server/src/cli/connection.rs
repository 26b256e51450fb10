//! A connection to a running server, for the commands that talk to one.

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use prombus_client::transport::{WebSocket, WebSocketError, open_websocket};
use prombus_proto::frame::{Auth, Outcome, ServerFrame, Token};
use prombus_proto::{ClientFrame, ClientOp, ErrorCode};
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

use super::server_arguments::GatewayArguments;

/// How long it may take to say goodbye.
const CLOSING_TIME: Duration = Duration::from_secs(2);

/// Why there is no connection, or none any more.
#[derive(Debug, Error)]
pub(super) enum ConnectionError {
    #[error("{0}")]
    Arguments(String),
    #[error(transparent)]
    NotReached(#[from] WebSocketError),
    #[error("{code}: {msg}")]
    Refused { code: ErrorCode, msg: String, retry_after: Option<Duration> },
    #[error("the server closed the connection: {code} {reason}")]
    Closed { code: u16, reason: String },
    #[error("the connection is lost: {0}")]
    Lost(String),
}

/// A connection, authenticated where there is a token.
pub(super) struct Connection {
    /// A task of its own writes, so that a server that is slow to read never keeps us from reading.
    outgoing: mpsc::UnboundedSender<Message>,
    writing: JoinHandle<()>,
    incoming: SplitStream<WebSocket>,
}

impl Connection {
    pub(super) async fn open(server: &GatewayArguments) -> Result<Self, ConnectionError> {
        let address = server.address().map_err(ConnectionError::Arguments)?;
        let socket = open_websocket(&address).await?;
        let (sink, incoming) = socket.split();
        let (outgoing, to_write) = mpsc::unbounded_channel();
        let writing = tokio::spawn(write(sink, to_write));
        let mut connection = Self { outgoing, writing, incoming };
        if let Some(token) = server.access.token() {
            let auth = Auth { token: Token::new(token) };
            connection.ask(ClientOp::Auth(auth)).await?;
        }
        Ok(connection)
    }

    /// Sends a frame, and does not wait for its answer.
    pub(super) fn send(&self, op: ClientOp) {
        let mut json = Vec::new();
        ClientFrame { corr: None, op }.write(&mut json);
        let text = String::from_utf8(json).expect("frames are written as UTF-8");
        // Where nobody writes any more, reading says why.
        let _ = self.outgoing.send(Message::text(text));
    }

    /// Sends a frame where nothing else can come than its answer.
    pub(super) async fn ask(&mut self, op: ClientOp) -> Result<Outcome, ConnectionError> {
        self.send(op);
        match self.next().await? {
            ServerFrame::Ok { outcome, .. } => Ok(outcome),
            ServerFrame::Err { code, msg, retry_after_ms, .. } => {
                Err(refused(code, msg, retry_after_ms))
            }
            ServerFrame::Event { topic, .. } => {
                let what = format!("an event of {topic} came where an answer had to");
                Err(ConnectionError::Lost(what))
            }
        }
    }

    /// The next frame. Nothing is lost when it is not waited for to the end.
    pub(super) async fn next(&mut self) -> Result<ServerFrame, ConnectionError> {
        loop {
            match self.incoming.next().await {
                Some(Ok(Message::Text(text))) => {
                    let frame = ServerFrame::parse(&Bytes::from(text));
                    return frame.map_err(|error| {
                        ConnectionError::Lost(format!("the server sent what is no frame: {error}"))
                    });
                }
                Some(Ok(Message::Close(Some(close)))) => {
                    let (code, reason) = (close.code.into(), close.reason.to_string());
                    return Err(ConnectionError::Closed { code, reason });
                }
                // The library answers pings. Anything else the protocol does not have.
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(ConnectionError::Lost(error.to_string())),
                None => return Err(ConnectionError::Lost("the server closed it".to_owned())),
            }
        }
    }

    /// Says goodbye, behind all that was sent.
    pub(super) async fn close(mut self) {
        drop(self.outgoing);
        let goodbye = async {
            // A task that failed has nothing left to write.
            let _ = self.writing.await;
            while let Some(Ok(_)) = self.incoming.next().await {}
        };
        // Who does not answer it is not waited for.
        let _ = timeout(CLOSING_TIME, goodbye).await;
    }
}

/// A refusal as an error.
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
        // What fails here fails for the reader, too, who says so.
        if sink.feed(message).await.is_err() {
            return;
        }
        if messages.is_empty() && sink.flush().await.is_err() {
            return;
        }
    }
    let _ = sink.close().await;
}
