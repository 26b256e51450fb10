//! Frames out and in over one WebSocket.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::{Sink, Stream};
use prombus_client::transport::{ServerAddress, WebSocket, open_websocket};
use prombus_proto::frame::{Auth, Token};
use prombus_proto::{ClientFrame, ClientOp};
use tokio_tungstenite::tungstenite::{self, Message, Utf8Bytes};

use super::{Glimpse, refusal};
use crate::BenchError;

/// So many frames are read before they are looked at.
const MOST_READ: usize = 1000;

/// A WebSocket. It writes and reads at the same time, for a server that waits for us to read would
/// not read, either.
pub(crate) struct Socket {
    socket: WebSocket,
    to_send: VecDeque<Message>,
    is_flushed: bool,
}

impl Socket {
    /// Opens one, and authenticates where there is a token.
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

    /// Says who we are, where nothing else can come than the answer, which has to be OK.
    pub(crate) async fn authenticate(&mut self, token: &str) -> Result<(), BenchError> {
        let op = ClientOp::Auth(Auth { token: Token::new(token.to_owned()) });
        let mut json = Vec::new();
        ClientFrame { corr: None, op }.write(&mut json);
        self.put(json)?;
        let mut answers = Vec::new();
        self.turn(&mut answers).await?;
        match answers.as_slice() {
            [answer] if Glimpse::of(answer) == Glimpse::Ok => Ok(()),
            [answer, ..] => Err(refusal(answer)),
            [] => Err(BenchError::NotUnderstood("no answer".to_owned())),
        }
    }

    /// Takes a frame, which leaves with the next turn.
    pub(crate) fn put(&mut self, text: Vec<u8>) -> Result<(), BenchError> {
        let text = String::from_utf8(text)
            .map_err(|error| BenchError::NotUnderstood(format!("our own frame: {error}")))?;
        self.to_send.push_back(Message::text(text));
        Ok(())
    }

    /// Sends what was put, and waits until frames come. Nothing is lost when it is not waited for
    /// to its end.
    pub(crate) async fn turn(&mut self, came: &mut Vec<Utf8Bytes>) -> Result<(), BenchError> {
        poll_fn(|context| self.poll_turn(context, came)).await
    }

    fn poll_turn(
        &mut self,
        context: &mut Context<'_>,
        came: &mut Vec<Utf8Bytes>,
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
        while came.len() < MOST_READ {
            match socket.as_mut().poll_next(context) {
                Poll::Ready(Some(Ok(Message::Text(text)))) => came.push(text),
                Poll::Ready(Some(Ok(Message::Close(close)))) => {
                    let why = close.map_or_else(String::new, |close| {
                        format!(": {} {}", u16::from(close.code), close.reason)
                    });
                    let closed = format!("the server closed it{why}");
                    return Poll::Ready(Err(BenchError::Lost(closed)));
                }
                // The library answers pings.
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(lost(error))),
                Poll::Ready(None) => {
                    return Poll::Ready(Err(BenchError::Lost("the server closed it".to_owned())));
                }
                Poll::Pending => break,
            }
        }
        if came.is_empty() { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    /// Says goodbye.
    pub(crate) async fn close(mut self) {
        // A server that is gone needs none.
        let _ = self.socket.close(None).await;
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is mapped over")]
fn lost(error: tungstenite::Error) -> BenchError {
    BenchError::Lost(error.to_string())
}
