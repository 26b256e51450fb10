//! A WebSocket over a [`Wire`]. The library finds the messages; the task that reads waits by itself.
//!
//! `tokio_tungstenite` would do the same, but readies two wakers for each message, also for those that
//! have come already.

use std::io::{self, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, ReadBuf};
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig, WebSocketContext};
use tokio_tungstenite::tungstenite::{Error, Message};

use super::wire::Wire;

pub(super) struct Socket<S> {
    pub(super) wire: Wire<S>,
    protocol: WebSocketContext,
}

impl<S: AsyncRead + Unpin> Socket<S> {
    pub(super) fn over(wire: Wire<S>, config: WebSocketConfig) -> Self {
        Self { wire, protocol: WebSocketContext::new(Role::Server, Some(config)) }
    }

    /// The next message; nothing when the peer has said goodbye.
    pub(super) fn poll_message(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Message, Error>>> {
        match self.protocol.read(&mut AtOnce { wire: &mut self.wire, context }) {
            Ok(message) => Poll::Ready(Some(Ok(message))),
            Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
            Err(Error::ConnectionClosed | Error::AlreadyClosed) => Poll::Ready(None),
            Err(error) => Poll::Ready(Some(Err(error))),
        }
    }
}

/// A wire that never waits: who would have to is woken later.
struct AtOnce<'a, 'b, S> {
    wire: &'a mut Wire<S>,
    context: &'a mut Context<'b>,
}

impl<S: AsyncRead + Unpin> Read for AtOnce<'_, '_, S> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut buffer = ReadBuf::new(bytes);
        match Pin::new(&mut *self.wire).poll_read(self.context, &mut buffer) {
            Poll::Ready(Ok(())) => Ok(buffer.filled().len()),
            Poll::Ready(Err(error)) => Err(error),
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

impl<S> Write for AtOnce<'_, '_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.wire.outgoing.frames(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
