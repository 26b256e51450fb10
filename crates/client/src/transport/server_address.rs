//! Where a server is, and the stream to it.

use std::io;
use std::path::Path;
use std::time::Duration;

use hyper::Uri;
use rustix::net::sockopt;
use rustls_pki_types::ServerName;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::Trust;

/// Why a server cannot be reached.
#[derive(Debug, Error)]
pub enum AddressError {
    /// The URL is none, or not one for this.
    #[error("{url}: {reason}; such as {examples}")]
    BadUrl {
        /// What was given; without a password.
        url: String,
        /// What is wrong with it.
        reason: String,
        /// What would be right.
        examples: &'static str,
    },
    /// The file of certificates to trust cannot be used.
    #[error("{path}: {reason}")]
    BadCaFile {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Nobody answers there.
    #[error("cannot connect to {url}: {source}{}", hint(source))]
    Unreachable {
        /// Where.
        url: String,
        /// What the operating system says, or TLS.
        source: io::Error,
    },
}

/// What may help.
fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            "; does a server run there? `prombus serve` starts one, and says where it is"
        }
        _ => "",
    }
}

/// What a connection runs over.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// What is spoken to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// By `ws` and `wss`.
    WebSocket,
    /// By `http` and `https`.
    Http,
}

impl Protocol {
    /// How its URLs begin, plain and encrypted.
    const fn schemes(self) -> [&'static str; 2] {
        match self {
            Protocol::WebSocket => ["ws", "wss"],
            Protocol::Http => ["http", "https"],
        }
    }

    const fn wrong_scheme(self) -> &'static str {
        match self {
            Protocol::WebSocket => "a gateway's URL begins with ws:// or wss://",
            Protocol::Http => "the URL of HTTP begins with http:// or https://",
        }
    }

    const fn examples(self) -> &'static str {
        match self {
            Protocol::WebSocket => "ws://127.0.0.1:8090/ or wss://bus.example.com/",
            Protocol::Http => "http://127.0.0.1:8083 or https://bus.example.com",
        }
    }
}

/// How long the server may take to answer the phone.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long nothing may come before we ask whether the server is still there, and how often.
const QUIET_TIME: Duration = Duration::from_secs(15);
const QUIET_ASKED_EVERY: Duration = Duration::from_secs(5);
const QUIET_ASKED_TIMES: u32 = 4;

/// Where a server is. Cheap to clone but for its text.
#[derive(Clone, Debug)]
pub struct ServerAddress {
    url: String,
    host: String,
    port: u16,
    /// Whom to trust there, where it is encrypted.
    trust: Option<Trust>,
}

impl ServerAddress {
    /// What `url` says. Where that is encrypted, the certificates in `ca_file` are trusted beside
    /// those that the system trusts.
    pub fn new(
        url: &str,
        protocol: Protocol,
        ca_file: Option<&Path>,
    ) -> Result<Self, AddressError> {
        let bad = |reason: &str| AddressError::BadUrl {
            url: without_user(url),
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
            return Err(bad("nobody is named in it: a token is handed over beside it"));
        }
        if protocol == Protocol::Http && uri.query().is_some() {
            return Err(bad("a query does not belong to it"));
        }
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = uri.port_u16().unwrap_or(if is_encrypted { 443 } else { 80 });
        let trust = is_encrypted.then(|| Trust::system_and(ca_file)).transpose()?;
        Ok(Self { url: url.to_owned(), host, port, trust })
    }

    /// The URL that it came from.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A stream to it, encrypted if its URL says so.
    pub async fn connect(&self) -> Result<Box<dyn Stream>, AddressError> {
        let unreachable = |source| AddressError::Unreachable { url: self.url.clone(), source };
        let stream =
            TcpStream::connect((self.host.as_str(), self.port)).await.map_err(unreachable)?;
        // What we send is put together by us; it need not wait for more.
        stream.set_nodelay(true).map_err(unreachable)?;
        notice_a_dead_peer(&stream).map_err(unreachable)?;
        let Some(trust) = &self.trust else { return Ok(Box::new(stream)) };
        let name = ServerName::try_from(self.host.clone())
            .map_err(|error| unreachable(io::Error::other(error)))?;
        Ok(Box::new(trust.connector().connect(name, stream).await.map_err(unreachable)?))
    }

    /// That it took too long.
    #[must_use]
    pub fn timed_out(&self) -> AddressError {
        AddressError::Unreachable { url: self.url.clone(), source: io::ErrorKind::TimedOut.into() }
    }
}

/// A server whose machine is gone says nothing, as one does that has nothing to say.
fn notice_a_dead_peer(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, QUIET_TIME)?;
    sockopt::set_tcp_keepintvl(stream, QUIET_ASKED_EVERY)?;
    sockopt::set_tcp_keepcnt(stream, QUIET_ASKED_TIMES)?;
    Ok(())
}

/// The URL as it may be shown: a password may be in front of the `@`.
fn without_user(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, place))) => format!("{scheme}://…@{place}"),
        (None, Some((_, place))) => format!("…@{place}"),
        (_, None) => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_say_where_and_whether_encrypted() {
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
    fn what_is_no_such_url_is_refused_by_name() {
        let anywhere = ["", "127.0.0.1:8090", "ftp://127.0.0.1/", "ws://", "ws:///x", "ws://a b/"];
        for protocol in [Protocol::WebSocket, Protocol::Http] {
            for bad in anywhere {
                let error = ServerAddress::new(bad, protocol, None).unwrap_err().to_string();
                assert!(error.starts_with(&format!("{bad}: ")), "{error}");
            }
        }
        ServerAddress::new("http://127.0.0.1/", Protocol::WebSocket, None).unwrap_err();
        ServerAddress::new("ws://127.0.0.1/", Protocol::Http, None).unwrap_err();
        ServerAddress::new("http://127.0.0.1/?a=b", Protocol::Http, None).unwrap_err();
    }

    #[test]
    fn a_password_is_not_shown() {
        for url in ["http://me:hunter2@bus.example.com/", "http://me:hunter2@", "me:hunter2@a b"] {
            let error = ServerAddress::new(url, Protocol::Http, None).unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
