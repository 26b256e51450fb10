//! A stream that is not torn down while its peer still sends.
//!
//! Who is refused before its whole request was read goes on sending. If the stream were closed with
//! that unread, the system would reset it, and the peer might never see why it was refused. So the
//! last answer is followed by the end of our side, and what still comes is read for a moment.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// After so long a pause nothing more is expected.
const PAUSE: Duration = Duration::from_millis(200);
/// How long it is read in all.
const MOST: Duration = Duration::from_secs(2);

pub(super) struct Lingering<S> {
    stream: S,
    leaving: Option<Box<Leaving>>,
}

/// Our side has ended.
struct Leaving {
    pause: Pin<Box<Sleep>>,
    until: Instant,
}

impl<S> Lingering<S> {
    pub(super) const fn new(stream: S) -> Self {
        Self { stream, leaving: None }
    }

    pub(super) fn into_inner(self) -> S {
        self.stream
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<S> {
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, leaving } = &mut *self;
        if leaving.is_none() {
            ready!(Pin::new(&mut *stream).poll_shutdown(context))?;
        }
        let leaving = leaving.get_or_insert_with(|| {
            let now = Instant::now();
            Box::new(Leaving { pause: Box::pin(sleep_until(now + PAUSE)), until: now + MOST })
        });
        let mut unread = [0; 4096];
        loop {
            let mut unread = ReadBuf::new(&mut unread);
            match Pin::new(&mut *stream).poll_read(context, &mut unread) {
                Poll::Ready(Ok(())) if !unread.filled().is_empty() => {
                    let next = (Instant::now() + PAUSE).min(leaving.until);
                    leaving.pause.as_mut().reset(next);
                }
                // Its side has ended, too.
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => return leaving.pause.as_mut().poll(context).map(Ok),
            }
        }
    }

    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lingering<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}
