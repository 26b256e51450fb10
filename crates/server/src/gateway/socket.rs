//! A WebSocket over a stream, polled by the task that owns it.

use std::task::{Context, Poll, ready};

use prombus_proto::limits::MAX_FRAME_BYTES_BEFORE_AUTH;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::{Error, Message};

use super::frame_room::FrameRoom;
use super::messages::Messages;
use super::wire::{READ_BYTES, Wire};

pub(super) struct Socket<S> {
    pub(super) wire: Wire<S>,
    messages: Messages,
    room: FrameRoom,
    /// The limit of a frame while the client has not authenticated.
    max_bytes_before_auth: Option<usize>,
}

/// The longest header of a frame.
const MAX_HEADER_BYTES: usize = 14;

impl<S: AsyncRead + AsyncWrite + Unpin> Socket<S> {
    /// `read_ahead` was read from the stream already.
    pub(super) fn new(
        wire: Wire<S>,
        read_ahead: &[u8],
        room: FrameRoom,
        max_frame_bytes: usize,
        is_authenticated: bool,
    ) -> Self {
        let max_bytes_before_auth =
            (!is_authenticated).then(|| max_frame_bytes.min(MAX_FRAME_BYTES_BEFORE_AUTH));
        let mut messages = Messages::new(max_bytes_before_auth.unwrap_or(max_frame_bytes));
        messages.append(read_ahead);
        Self { wire, messages, room, max_bytes_before_auth }
    }

    /// Allows frames of `max_frame_bytes` once the client has authenticated.
    pub(super) fn authenticated(&mut self, max_frame_bytes: usize) {
        if self.max_bytes_before_auth.take().is_some() {
            self.messages.set_max_message_bytes(max_frame_bytes);
        }
    }

    /// Returns whether nothing is read because other connections have most of the memory for frames.
    pub(super) const fn is_waiting_for_room(&self) -> bool {
        self.room.is_waiting()
    }

    /// Returns when the message that is arriving has to be complete.
    pub(super) fn complete_by(&self) -> Option<Instant> {
        self.room.complete_by(self.messages.held_bytes())
    }

    /// Restarts the time of the message that is arriving: the socket is not read.
    pub(super) const fn restart_arrival(&mut self) {
        self.room.restart();
    }

    /// Returns the next message, or `None` once the closing handshake is complete. The frames that are not
    /// answered yet have `unanswered` bytes.
    pub(super) fn poll_message(
        &mut self,
        context: &mut Context<'_>,
        unanswered: usize,
    ) -> Poll<Option<Result<Message, Error>>> {
        loop {
            let read = match self.messages.next(&mut self.wire.outgoing) {
                Some(read) => {
                    self.room.restart();
                    read
                }
                None => {
                    let limit = ready!(self.poll_room(context, unanswered));
                    let append = |read: &[u8]| self.messages.append(read);
                    match ready!(self.wire.poll_read(context, limit, append)) {
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

    /// Returns how many bytes may be read.
    fn poll_room(&mut self, context: &mut Context<'_>, unanswered: usize) -> Poll<usize> {
        if let Some(max) = self.max_bytes_before_auth {
            // A complete frame is parsed before more is read, so there always is room for a byte.
            let room = max + MAX_HEADER_BYTES;
            return Poll::Ready(room.saturating_sub(self.messages.unparsed()).max(1));
        }
        let held = self.messages.held_bytes();
        self.room.arriving(held);
        let growth = self.messages.growth_for(READ_BYTES);
        match self.room.poll_grow(context, held + unanswered, growth) {
            Poll::Ready(count) => Poll::Ready(count),
            // The room that there is may suffice for the rest of the frame.
            Poll::Pending => match self.messages.spare_bytes() {
                0 => Poll::Pending,
                spare => Poll::Ready(spare.min(READ_BYTES)),
            },
        }
    }
}
