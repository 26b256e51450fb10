//! The stream under a WebSocket: reads come from the peer, writes wait in [`Outgoing`].
//!
//! The library writes its pongs and the answer to a goodbye into the same buffer as everybody
//! else, so that frames never mix however slowly the peer takes them.

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

/// How much is read at once.
const READ_BYTES: usize = 64 << 10;

thread_local! {
    /// What is read comes in here first. A buffer of such a size for each connection would be most of
    /// what an idle one takes, and a smaller one would need more calls of the system.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into());
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    pub(super) fn new(stream: S, traffic: Traffic) -> Self {
        Self { stream, outgoing: Outgoing::default(), traffic }
    }

    /// Hands what has come to `take`. Answers how much that was, which is nothing at the end.
    pub(super) fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        take: impl FnOnce(&[u8]),
    ) -> Poll<io::Result<usize>> {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut read = ReadBuf::new(scratch);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut read))?;
            let count = read.filled().len();
            self.traffic.received(count);
            take(read.filled());
            Poll::Ready(Ok(count))
        })
    }

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

    /// Ends the stream properly. What the peer still sends is read: a stream that is closed before that is
    /// cut off, and the goodbye with it.
    pub(super) async fn end(&mut self) -> io::Result<()> {
        self.stream.shutdown().await?;
        let mut unread = [0; 1024];
        while self.stream.read(&mut unread).await? > 0 {}
        Ok(())
    }
}
