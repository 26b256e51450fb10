//! A stream with a lingering close.
//!
//! A client that is refused before its whole request is read keeps sending. Closing the socket with
//! unread data would reset the connection, and the client might never see the response. So we shut
//! down our side first, and read and discard for a moment.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

/// The close completes when the peer has sent nothing for this long.
const QUIET_TIME: Duration = Duration::from_millis(200);
/// The limit of the whole close.
const MAX_TIME: Duration = Duration::from_secs(2);
/// Reads per poll, so that other connections of the thread get their turn.
const READS_PER_TURN: usize = 8;
/// How long a slow client may take to receive what a failing response has sent.
const MAX_FLUSH_TIME: Duration = Duration::from_secs(10);

pub(super) struct LingeringStream<S> {
    stream: S,
    closing: Option<Box<Closing>>,
    flushed: Arc<Flushed>,
}

/// Tells when everything written so far has been sent.
#[derive(Default)]
pub(crate) struct Flushed(Notify);

/// The state after our side is shut down.
struct Closing {
    quiet: Pin<Box<Sleep>>,
    until: Instant,
}

impl<S> LingeringStream<S> {
    pub(super) const fn new(stream: S, flushed: Arc<Flushed>) -> Self {
        Self { stream, closing: None, flushed }
    }

    pub(super) fn into_inner(self) -> S {
        self.stream
    }
}

impl Flushed {
    /// Waits, for a response body, until the connection has sent what the body returned before. A body
    /// that fails makes the connection drop everything that it has not sent yet.
    pub(crate) async fn wait(&self) {
        let flushed = self.0.notified();
        // Hyper may poll a body for the last time after it has flushed. Yielding makes it poll and
        // flush again.
        let waiting = async {
            tokio::task::yield_now().await;
            flushed.await;
        };
        // Nothing is lost if the time is over: the client resumes after the last event it received.
        let _ = timeout(MAX_FLUSH_TIME, waiting).await;
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for LingeringStream<S> {
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, closing, .. } = &mut *self;
        if closing.is_none() {
            ready!(Pin::new(&mut *stream).poll_shutdown(context))?;
        }
        let closing = closing.get_or_insert_with(|| {
            let now = Instant::now();
            Box::new(Closing {
                quiet: Box::pin(sleep_until(now + QUIET_TIME)),
                until: now + MAX_TIME,
            })
        });
        let mut unread = [0; 4096];
        for _ in 0..READS_PER_TURN {
            let mut unread = ReadBuf::new(&mut unread);
            match Pin::new(&mut *stream).poll_read(context, &mut unread) {
                Poll::Ready(Ok(())) if !unread.filled().is_empty() => {
                    let next = (Instant::now() + QUIET_TIME).min(closing.until);
                    closing.quiet.as_mut().reset(next);
                }
                // The peer has ended its side, or is gone.
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => return closing.quiet.as_mut().poll(context).map(Ok),
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
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
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        self.flushed.0.notify_waiters();
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for LingeringStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}
