//! A WebSocket over a stream, polled by the task that owns it.

use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::tungstenite::{Error, Message};

use super::messages::Messages;
use super::wire::Wire;

pub(super) struct Socket<S> {
    pub(super) wire: Wire<S>,
    messages: Messages,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Socket<S> {
    pub(super) const fn new(wire: Wire<S>, messages: Messages) -> Self {
        Self { wire, messages }
    }

    /// Returns the next message, or `None` once the closing handshake is complete.
    pub(super) fn poll_message(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Message, Error>>> {
        loop {
            let read = match self.messages.next(&mut self.wire.outgoing) {
                Some(read) => read,
                None => {
                    match ready!(self.wire.poll_read(context, |read| self.messages.append(read))) {
                        Ok(0) => self.messages.end_of_stream(&mut self.wire.outgoing),
                        Ok(_) => continue,
                        Err(error) => Err(error.into()),
                    }
                }
            };
            return Poll::Ready(match read {
                Err(Error::ConnectionClosed | Error::AlreadyClosed) => None,
                read => Some(read),
            });
        }
    }
}
