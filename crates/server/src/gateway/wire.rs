//! The stream under a WebSocket: reads come from the peer, writes wait in [`Outgoing`].
//!
//! The library writes its pongs and the answer to a goodbye into the same buffer as everybody
//! else, so that frames never mix however slowly the peer takes them.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use prombus_bus::Traffic;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::outgoing::Outgoing;

#[derive(Debug)]
pub(super) struct Wire<S> {
    stream: S,
    /// What was read, first together with the request, and not taken yet.
    read_ahead: Bytes,
    pub(super) outgoing: Outgoing,
    traffic: Traffic,
}

impl<S> Wire<S> {
    pub(super) fn new(stream: S, read_ahead: Bytes, traffic: Traffic) -> Self {
        // Even an empty one may hold on to the whole buffer that the request was read into.
        let read_ahead = if read_ahead.is_empty() { Bytes::new() } else { read_ahead };
        traffic.received(read_ahead.len());
        Self { stream, read_ahead, outgoing: Outgoing::default(), traffic }
    }
}

impl<S: AsyncWrite + Unpin> Wire<S> {
    /// Writes as much as the peer takes now. Answers how much that was.
    pub(super) fn poll_drain(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut total = 0;
        while !self.outgoing.is_empty() {
            let stream = Pin::new(&mut self.stream);
            match stream.poll_write(context, self.outgoing.to_write()) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(count)) => {
                    self.outgoing.wrote(count);
                    self.traffic.sent(count);
                    total += count;
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending if total > 0 => return Poll::Ready(Ok(total)),
                Poll::Pending => return Poll::Pending,
            }
        }
        // A stream with a buffer of its own, such as TLS, has to let go of it.
        match Pin::new(&mut self.stream).poll_flush(context) {
            Poll::Ready(Ok(())) => Poll::Ready(Ok(total)),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Ready(Ok(total)),
        }
    }

    /// Ends the stream properly.
    pub(super) async fn shutdown(&mut self) -> io::Result<()> {
        tokio::io::AsyncWriteExt::shutdown(&mut self.stream).await
    }
}

/// How much is read at once.
const READ_BYTES: usize = 64 << 10;

thread_local! {
    /// What is read comes in here first. A buffer of such a size for each connection would be most of
    /// what an idle one takes, and a smaller one would need more calls of the system.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into());
}

impl<S: AsyncRead + Unpin> Wire<S> {
    /// Reads much at once: into `buffer` what it takes, and the rest for later.
    fn poll_read_much(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut much = ReadBuf::new(scratch);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut much))?;
            self.traffic.received(much.filled().len());
            let (now, later) = much.filled().split_at(much.filled().len().min(buffer.remaining()));
            buffer.put_slice(now);
            self.read_ahead = Bytes::copy_from_slice(later);
            Poll::Ready(Ok(()))
        })
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Wire<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read_ahead.is_empty() {
            return self.poll_read_much(context, buffer);
        }
        let count = self.read_ahead.len().min(buffer.remaining());
        buffer.put_slice(&self.read_ahead[..count]);
        self.read_ahead.advance(count);
        if self.read_ahead.is_empty() {
            self.read_ahead = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}
