//! A TCP stream without TLS that notices a server with TLS.

use std::error::Error;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The server answered a plain request with a record of TLS.
#[derive(Debug)]
struct SpeaksTls;

impl fmt::Display for SpeaksTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the server speaks TLS")
    }
}

impl Error for SpeaksTls {}

/// Returns `true` if the error, or one behind it, says that the server speaks TLS.
pub(super) fn is_from_tls_server(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let io_error = error.downcast_ref::<io::Error>();
        if io_error.and_then(io::Error::get_ref).is_some_and(|inner| inner.is::<SpeaksTls>()) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Fails at the first read if the server speaks TLS.
pub(super) struct PlainStream {
    tcp: TcpStream,
    has_read: bool,
}

impl PlainStream {
    pub(super) const fn new(tcp: TcpStream) -> Self {
        Self { tcp, has_read: false }
    }
}

impl AsyncRead for PlainStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.tcp).poll_read(context, buffer))?;
        if !self.has_read {
            self.has_read = true;
            if is_tls_record(&buffer.filled()[before..]) {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, SpeaksTls)));
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for PlainStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(context)
    }
}

/// Returns `true` for the start of an alert or a handshake of TLS, with which no answer of HTTP starts.
fn is_tls_record(bytes: &[u8]) -> bool {
    const ALERT: u8 = 21;
    const HANDSHAKE: u8 = 22;
    const MAJOR_VERSION: u8 = 3;
    match bytes {
        [kind, rest @ ..] => {
            matches!(*kind, ALERT | HANDSHAKE)
                && rest.first().is_none_or(|major| *major == MAJOR_VERSION)
        }
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognises_tls_by_its_first_bytes() {
        for tls in [&[21, 3, 3, 0, 2, 2, 50][..], &[22, 3, 1], &[21]] {
            assert!(is_tls_record(tls), "{tls:?}");
        }
        for other in [&b"HTTP/1.1 400"[..], b"", &[21, 9]] {
            assert!(!is_tls_record(other), "{other:?}");
        }
    }

    #[test]
    fn finds_the_cause_behind_other_errors() {
        let error = io::Error::new(io::ErrorKind::InvalidData, SpeaksTls);
        assert!(is_from_tls_server(&error));
        let wrapped = tokio_tungstenite::tungstenite::Error::Io(error);
        assert!(is_from_tls_server(&wrapped));
        assert!(!is_from_tls_server(&io::Error::other("else")));
    }
}
