//! The address of a server, and streams to it.

use std::io;
use std::path::Path;
use std::time::Duration;

use hyper::Uri;
use rustix::net::sockopt;
use rustls_pki_types::ServerName;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::rustls::{self, CertificateError};

use super::Trust;
use super::plain_stream::PlainStream;

/// Why a server cannot be reached.
#[derive(Debug, Error)]
pub enum AddressError {
    /// The URL is not valid for the protocol.
    #[error("{url}: {reason}; for example {examples}")]
    BadUrl {
        /// The URL, without credentials.
        url: String,
        /// What is wrong with it.
        reason: String,
        /// Valid URLs.
        examples: &'static str,
    },
    /// The file of trusted certificates cannot be used.
    #[error("{path}: {reason}")]
    BadCaFile {
        /// The path as it was given.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The server uses TLS and the URL does not, or the other way around.
    #[error("{url}: the server there {}", wrong_scheme(*.uses_tls))]
    WrongScheme {
        /// The server's URL.
        url: String,
        /// Whether the server uses TLS.
        uses_tls: bool,
    },
    /// No connection could be opened.
    #[error("cannot connect to {url}: {source}{}", hint(source))]
    Unreachable {
        /// The server's URL.
        url: String,
        /// The error of the operating system or of TLS.
        source: io::Error,
    },
}

const fn wrong_scheme(uses_tls: bool) -> &'static str {
    if uses_tls {
        "uses TLS: start the URL with https:// or wss://"
    } else {
        "does not use TLS: start the URL with http:// or ws://"
    }
}

/// Returns advice for the user.
fn hint(error: &io::Error) -> &'static str {
    let tls = error.get_ref().and_then(|error| error.downcast_ref());
    if let Some(rustls::Error::InvalidCertificate(invalid)) = tls {
        return match invalid {
            CertificateError::UnknownIssuer => {
                "; trust the server's own certificate, or that of the CA that signed it (--ca-file)"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "; use a name from the certificate in the URL, or make one with the URL's name or \
                 address as its subjectAltName"
            }
            _ => "",
        };
    }
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            "; is a server running there? `prombus serve` starts one and prints its address"
        }
        _ => "",
    }
}

/// A TCP or TLS stream.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// The protocol of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// `ws` and `wss`.
    WebSocket,
    /// `http` and `https`.
    Http,
}

impl Protocol {
    /// The plain scheme and the encrypted one.
    const fn schemes(self) -> [&'static str; 2] {
        match self {
            Protocol::WebSocket => ["ws", "wss"],
            Protocol::Http => ["http", "https"],
        }
    }

    const fn wrong_scheme(self) -> &'static str {
        match self {
            Protocol::WebSocket => "a gateway URL starts with ws:// or wss://",
            Protocol::Http => "an HTTP URL starts with http:// or https://",
        }
    }

    const fn examples(self) -> &'static str {
        match self {
            Protocol::WebSocket => "ws://127.0.0.1:8090/ or wss://bus.example.com/",
            Protocol::Http => "http://127.0.0.1:8083 or https://bus.example.com",
        }
    }
}

/// How long opening a connection may take, including TLS and the WebSocket handshake.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES: u32 = 4;

/// The address of a server.
#[derive(Clone, Debug)]
pub struct ServerAddress {
    url: String,
    host: String,
    port: u16,
    /// Set if the connection is encrypted.
    trust: Option<Trust>,
}

impl ServerAddress {
    /// Parses `url`. If it is encrypted, the certificates in `ca_file` are trusted in addition to
    /// the system's.
    ///
    /// # Errors
    ///
    /// [`AddressError::BadUrl`] or [`AddressError::BadCaFile`].
    pub fn new(
        url: &str,
        protocol: Protocol,
        ca_file: Option<&Path>,
    ) -> Result<Self, AddressError> {
        let bad = |reason: &str| AddressError::BadUrl {
            url: without_credentials(url),
            reason: reason.to_owned(),
            examples: protocol.examples(),
        };
        let uri: Uri = url.parse().map_err(|_| bad("not a URL"))?;
        let [plain, encrypted] = protocol.schemes();
        let is_encrypted = match uri.scheme_str() {
            Some(scheme) if scheme == plain => false,
            Some(scheme) if scheme == encrypted => true,
            _ => return Err(bad(protocol.wrong_scheme())),
        };
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(|| bad("no host"))?;
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(bad("credentials in the URL are not supported: use a token instead"));
        }
        if protocol == Protocol::Http && uri.query().is_some() {
            return Err(bad("a query is not allowed here"));
        }
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = uri.port_u16().unwrap_or(if is_encrypted { 443 } else { 80 });
        let trust = is_encrypted.then(|| Trust::load(ca_file)).transpose()?;
        Ok(Self { url: url.to_owned(), host, port, trust })
    }

    /// Returns the URL as it was given.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Opens a stream, with TLS if the URL is encrypted. It has no timeout of its own.
    ///
    /// # Errors
    ///
    /// [`AddressError::Unreachable`].
    pub async fn connect(&self) -> Result<Box<dyn Stream>, AddressError> {
        let unreachable = |source| AddressError::Unreachable { url: self.url.clone(), source };
        let stream =
            TcpStream::connect((self.host.as_str(), self.port)).await.map_err(unreachable)?;
        // Frames are already written in batches.
        stream.set_nodelay(true).map_err(unreachable)?;
        enable_keepalive(&stream).map_err(unreachable)?;
        let Some(trust) = &self.trust else { return Ok(Box::new(PlainStream::new(stream))) };
        let name = ServerName::try_from(self.host.clone())
            .map_err(|error| unreachable(io::Error::other(error)))?;
        match trust.connector().connect(name, stream).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) if is_from_plain_server(&error) => Err(self.wrong_scheme(false)),
            Err(error) => Err(unreachable(error)),
        }
    }

    /// Returns the error for a server that uses TLS although the URL does not, or the other way around.
    pub(super) fn wrong_scheme(&self, uses_tls: bool) -> AddressError {
        AddressError::WrongScheme { url: self.url.clone(), uses_tls }
    }

    /// Returns the error for a connection that took longer than [`CONNECT_TIMEOUT`].
    #[must_use]
    pub fn timeout_error(&self) -> AddressError {
        AddressError::Unreachable { url: self.url.clone(), source: io::ErrorKind::TimedOut.into() }
    }
}

/// Returns `true` if what came in a TLS handshake was not TLS.
fn is_from_plain_server(error: &io::Error) -> bool {
    let tls_error = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    tls_error.is_some_and(|error| matches!(error, rustls::Error::InvalidMessage(_)))
}

/// Detects a server whose machine is gone, which otherwise looks like an idle one.
fn enable_keepalive(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_PROBES)?;
    Ok(())
}

/// Removes everything before the `@`, which may contain a password.
fn without_credentials(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://…@{host}"),
        (None, Some((_, host))) => format!("…@{host}"),
        (_, None) => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_host_port_and_encryption() {
        let (ws, http) = (Protocol::WebSocket, Protocol::Http);
        for (protocol, url, host, port, is_encrypted) in [
            (ws, "ws://127.0.0.1:8090/", "127.0.0.1", 8090, false),
            (ws, "ws://localhost", "localhost", 80, false),
            (ws, "wss://bus.example.com/ws", "bus.example.com", 443, true),
            (ws, "wss://[::1]:9/", "::1", 9, true),
            (http, "http://127.0.0.1:8083", "127.0.0.1", 8083, false),
            (http, "https://bus.example.com/bus/", "bus.example.com", 443, true),
        ] {
            let address = ServerAddress::new(url, protocol, None).unwrap();
            assert_eq!(address.url(), url);
            assert_eq!((address.host.as_str(), address.port), (host, port), "{url}");
            assert_eq!(address.trust.is_some(), is_encrypted, "{url}");
        }
    }

    #[test]
    fn rejects_urls_of_other_kinds_by_name() {
        let invalid = ["", "127.0.0.1:8090", "ftp://127.0.0.1/", "ws://", "ws:///x", "ws://a b/"];
        for protocol in [Protocol::WebSocket, Protocol::Http] {
            for bad in invalid {
                let error = ServerAddress::new(bad, protocol, None).unwrap_err().to_string();
                assert!(error.starts_with(&format!("{bad}: ")), "{error}");
            }
        }
        ServerAddress::new("http://127.0.0.1/", Protocol::WebSocket, None).unwrap_err();
        ServerAddress::new("ws://127.0.0.1/", Protocol::Http, None).unwrap_err();
        ServerAddress::new("http://127.0.0.1/?a=b", Protocol::Http, None).unwrap_err();
    }

    #[test]
    fn hides_passwords() {
        for url in ["http://me:hunter2@bus.example.com/", "http://me:hunter2@", "me:hunter2@a b"] {
            let error = ServerAddress::new(url, Protocol::Http, None).unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
