//! The byte stream under a WebSocket: reads go to the caller, writes are buffered in [`Outgoing`].
//!
//! tungstenite writes its pongs and its close frames into the same buffer, so frames never
//! interleave, however slowly the peer reads.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use prombus_bus::Traffic;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use super::outgoing::Outgoing;

#[derive(Debug)]
pub(super) struct Wire<S> {
    stream: S,
    pub(super) outgoing: Outgoing,
    traffic: Traffic,
}

/// The size of one read.
pub(super) const READ_BYTES: usize = 64 << 10;

thread_local! {
    /// Reads land here first. A buffer of this size per connection would be most of the memory of an
    /// idle connection; a smaller one would need more system calls.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into());
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    pub(super) fn new(stream: S, traffic: Traffic) -> Self {
        Self { stream, outgoing: Outgoing::default(), traffic }
    }

    /// Passes the bytes of one read, at most `limit`, to `consume`, and returns their number: 0 at the end of
    /// the stream.
    pub(super) fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        limit: usize,
        consume: impl FnOnce(&[u8]),
    ) -> Poll<io::Result<usize>> {
        SCRATCH.with_borrow_mut(|scratch| {
            let limit = limit.min(scratch.len());
            let mut read = ReadBuf::new(&mut scratch[..limit]);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut read))?;
            let count = read.filled().len();
            self.traffic.received(count);
            consume(read.filled());
            Poll::Ready(Ok(count))
        })
    }

    /// Writes as much of the buffer as the peer accepts, and returns the number of bytes written.
    pub(super) fn poll_drain(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut total = 0;
        while !self.outgoing.is_empty() {
            let stream = Pin::new(&mut self.stream);
            match stream.poll_write(context, self.outgoing.unwritten()) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(count)) => {
                    self.outgoing.advance(count);
                    self.traffic.sent(count);
                    total += count;
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending if total > 0 => return Poll::Ready(Ok(total)),
                Poll::Pending => return Poll::Pending,
            }
        }
        // A stream with a buffer of its own, such as TLS, has to be flushed.
        match Pin::new(&mut self.stream).poll_flush(context) {
            Poll::Ready(Ok(())) => Poll::Ready(Ok(total)),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Ready(Ok(total)),
        }
    }

    /// Shuts down our side and reads until the peer ends its own. Closing a socket with unread data
    /// resets it, and the peer might lose the close frame.
    pub(super) async fn shut_down(&mut self) -> io::Result<()> {
        self.stream.shutdown().await?;
        let mut unread = [0; 1024];
        while self.stream.read(&mut unread).await? > 0 {}
        Ok(())
    }
}
