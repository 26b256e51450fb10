//! Sends and receives frames over one WebSocket.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::{Sink, Stream};
use prombus_client::transport::{ServerAddress, WebSocket, open_websocket};
use prombus_proto::frame::{Auth, Token};
use prombus_proto::{ClientFrame, ClientOp};
use tokio_tungstenite::tungstenite::{self, Message, Utf8Bytes};

use super::{FramePeek, frame_error};
use crate::BenchError;

/// Frames returned by one exchange at most.
const MAX_READ: usize = 1000;

/// A WebSocket that writes and reads at the same time, because a server that cannot write stops
/// reading.
pub(crate) struct Socket {
    socket: WebSocket,
    to_send: VecDeque<Message>,
    is_flushed: bool,
}

impl Socket {
    /// Opens a connection, and authenticates if there is a token.
    pub(crate) async fn open(
        address: &ServerAddress,
        token: Option<&str>,
    ) -> Result<Self, BenchError> {
        let socket = open_websocket(address).await?;
        let mut socket = Self { socket, to_send: VecDeque::new(), is_flushed: true };
        if let Some(token) = token {
            socket.authenticate(token).await?;
        }
        Ok(socket)
    }

    /// Authenticates and waits for the answer, while nothing else is expected.
    pub(crate) async fn authenticate(&mut self, token: &str) -> Result<(), BenchError> {
        let op = ClientOp::Auth(Auth { token: Some(Token::new(token.to_owned())) });
        let mut json = Vec::new();
        ClientFrame { corr: None, op }.write(&mut json);
        self.enqueue(json)?;
        let mut answers = Vec::new();
        self.exchange(&mut answers).await?;
        match answers.as_slice() {
            [answer] if FramePeek::of(answer) == FramePeek::Ok => Ok(()),
            [answer, ..] => Err(frame_error(answer)),
            [] => Err(BenchError::NotUnderstood("no answer to AUTH".to_owned())),
        }
    }

    /// Queues a frame for the next exchange.
    pub(crate) fn enqueue(&mut self, text: Vec<u8>) -> Result<(), BenchError> {
        let text = String::from_utf8(text).map_err(|error| {
            BenchError::NotUnderstood(format!("invalid outgoing frame: {error}"))
        })?;
        self.to_send.push_back(Message::text(text));
        Ok(())
    }

    /// Sends the queued frames and waits for received ones. It is cancel safe.
    pub(crate) async fn exchange(
        &mut self,
        received: &mut Vec<Utf8Bytes>,
    ) -> Result<(), BenchError> {
        poll_fn(|context| self.poll_exchange(context, received)).await
    }

    fn poll_exchange(
        &mut self,
        context: &mut Context<'_>,
        received: &mut Vec<Utf8Bytes>,
    ) -> Poll<Result<(), BenchError>> {
        let mut socket = Pin::new(&mut self.socket);
        while !self.to_send.is_empty()
            && socket.as_mut().poll_ready(context).map_err(lost)?.is_ready()
        {
            if let Some(message) = self.to_send.pop_front() {
                socket.as_mut().start_send(message).map_err(lost)?;
                self.is_flushed = false;
            }
        }
        if !self.is_flushed {
            self.is_flushed = socket.as_mut().poll_flush(context).map_err(lost)?.is_ready();
        }
        while received.len() < MAX_READ {
            match socket.as_mut().poll_next(context) {
                Poll::Ready(Some(Ok(Message::Text(text)))) => received.push(text),
                Poll::Ready(Some(Ok(Message::Close(close)))) => {
                    let why = close.map_or_else(String::new, |close| {
                        format!(": {} {}", u16::from(close.code), close.reason)
                    });
                    let closed = format!("closed by the server{why}");
                    return Poll::Ready(Err(BenchError::Lost(closed)));
                }
                // The library answers pings.
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(lost(error))),
                Poll::Ready(None) => {
                    return Poll::Ready(Err(BenchError::Lost("closed by the server".to_owned())));
                }
                Poll::Pending => break,
            }
        }
        if received.is_empty() { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    pub(crate) async fn close(mut self) {
        // The server may be gone already.
        let _ = self.socket.close(None).await;
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn lost(error: tungstenite::Error) -> BenchError {
    BenchError::Lost(error.to_string())
}
