//! Which server a command talks to, and the stream to it.

use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper::Uri;
use rustix::net::sockopt;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// What every command takes that talks to a server's gateway.
#[derive(clap::Args)]
pub(super) struct GatewayArguments {
    /// The server's WebSocket gateway
    #[arg(long, value_name = "URL", default_value = "ws://127.0.0.1:8090/")]
    pub(super) url: String,
    #[command(flatten)]
    pub(super) access: AccessArguments,
}

/// What every command takes that talks to a server's HTTP port.
#[derive(clap::Args)]
pub(super) struct HttpArguments {
    /// The server's HTTP address
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8083")]
    pub(super) url: String,
    #[command(flatten)]
    pub(super) access: AccessArguments,
}

/// Who we are, and whom we trust.
#[derive(clap::Args)]
pub(super) struct AccessArguments {
    /// Authenticate with this token; others on this machine cannot see it when it comes from
    /// PROMBUS_TOKEN in the environment instead
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
    /// Trust the certificates in this PEM file, beside those that the system trusts (for wss and
    /// https)
    #[arg(long, value_name = "FILE")]
    pub(super) ca_file: Option<PathBuf>,
}

impl AccessArguments {
    /// The token, if there is one.
    pub(super) fn token(&self) -> Option<String> {
        let given = self.token.clone().or_else(|| env::var("PROMBUS_TOKEN").ok());
        given.filter(|token| !token.is_empty())
    }
}

/// Why a server cannot be reached.
#[derive(Debug, Error)]
pub(super) enum AddressError {
    #[error("--url {url}: {reason}; such as {examples}")]
    BadUrl { url: String, reason: String, examples: &'static str },
    #[error("--ca-file {path}: {reason}")]
    BadCaFile { path: String, reason: String },
    #[error("cannot connect to {url}: {source}{}", hint(source))]
    Unreachable { url: String, source: io::Error },
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
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// What is spoken to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speech {
    WebSocket,
    Http,
}

impl Speech {
    /// How its URLs begin, plain and encrypted.
    const fn schemes(self) -> [&'static str; 2] {
        match self {
            Speech::WebSocket => ["ws", "wss"],
            Speech::Http => ["http", "https"],
        }
    }

    const fn wrong_scheme(self) -> &'static str {
        match self {
            Speech::WebSocket => "a gateway's URL begins with ws:// or wss://",
            Speech::Http => "the URL of HTTP begins with http:// or https://",
        }
    }

    const fn examples(self) -> &'static str {
        match self {
            Speech::WebSocket => "ws://127.0.0.1:8090/ or wss://bus.example.com/",
            Speech::Http => "http://127.0.0.1:8083 or https://bus.example.com",
        }
    }
}

/// How long the server may take to answer the phone.
pub(super) const OPENING_TIME: Duration = Duration::from_secs(10);
/// How long nothing may come before we ask whether the server is still there, and how often.
const QUIET_TIME: Duration = Duration::from_secs(15);
const QUIET_ASKED_EVERY: Duration = Duration::from_secs(5);
const QUIET_ASKED_TIMES: u32 = 4;

/// Where a server is.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ServerAddress {
    pub(super) url: String,
    host: String,
    port: u16,
    is_encrypted: bool,
}

impl ServerAddress {
    pub(super) fn parse(url: &str, speech: Speech) -> Result<Self, AddressError> {
        let bad = |reason: &str| AddressError::BadUrl {
            url: without_user(url),
            reason: reason.to_owned(),
            examples: speech.examples(),
        };
        let uri: Uri = url.parse().map_err(|_| bad("not a URL"))?;
        let [plain, encrypted] = speech.schemes();
        let is_encrypted = match uri.scheme_str() {
            Some(scheme) if scheme == plain => false,
            Some(scheme) if scheme == encrypted => true,
            _ => return Err(bad(speech.wrong_scheme())),
        };
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(|| bad("no host"))?;
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(bad("nobody is named in it: a token comes by --token or PROMBUS_TOKEN"));
        }
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = uri.port_u16().unwrap_or(if is_encrypted { 443 } else { 80 });
        Ok(Self { url: url.to_owned(), host, port, is_encrypted })
    }

    /// A stream to it, encrypted if its URL says so.
    pub(super) async fn connect(
        &self,
        ca_file: Option<&Path>,
    ) -> Result<Box<dyn Stream>, AddressError> {
        let tls = if self.is_encrypted { Some(tls_connector(ca_file)?) } else { None };
        let unreachable = |source| AddressError::Unreachable { url: self.url.clone(), source };
        let stream =
            TcpStream::connect((self.host.as_str(), self.port)).await.map_err(unreachable)?;
        // What we send is put together by us; it need not wait for more.
        stream.set_nodelay(true).map_err(unreachable)?;
        notice_a_dead_peer(&stream).map_err(unreachable)?;
        let Some(tls) = tls else { return Ok(Box::new(stream)) };
        let name = ServerName::try_from(self.host.clone())
            .map_err(|error| unreachable(io::Error::other(error)))?;
        Ok(Box::new(tls.connect(name, stream).await.map_err(unreachable)?))
    }

    /// That it took too long.
    pub(super) fn timed_out(&self) -> AddressError {
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

fn tls_connector(ca_file: Option<&Path>) -> Result<TlsConnector, AddressError> {
    let mut roots = RootCertStore::empty();
    // A system without roots of its own may still be given some.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = ca_file {
        let bad =
            |reason: String| AddressError::BadCaFile { path: path.display().to_string(), reason };
        let certificates = CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| bad(error.to_string()))?;
        if certificates.is_empty() {
            return Err(bad("no certificate is in it; PEM with BEGIN CERTIFICATE".to_owned()));
        }
        for certificate in certificates {
            roots.add(certificate).map_err(|error| bad(error.to_string()))?;
        }
    }
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_say_where_and_whether_encrypted() {
        let (ws, http) = (Speech::WebSocket, Speech::Http);
        for (speech, url, host, port, is_encrypted) in [
            (ws, "ws://127.0.0.1:8090/", "127.0.0.1", 8090, false),
            (ws, "ws://localhost", "localhost", 80, false),
            (ws, "wss://bus.example.com/ws", "bus.example.com", 443, true),
            (ws, "wss://[::1]:9/", "::1", 9, true),
            (http, "http://127.0.0.1:8083", "127.0.0.1", 8083, false),
            (http, "https://bus.example.com/bus/", "bus.example.com", 443, true),
        ] {
            let address = ServerAddress::parse(url, speech).unwrap();
            let expected =
                ServerAddress { url: url.to_owned(), host: host.to_owned(), port, is_encrypted };
            assert_eq!(address, expected);
        }
    }

    #[test]
    fn what_is_no_such_url_is_refused_by_name() {
        let anywhere = ["", "127.0.0.1:8090", "ftp://127.0.0.1/", "ws://", "ws:///x", "ws://a b/"];
        for speech in [Speech::WebSocket, Speech::Http] {
            for bad in anywhere {
                let error = ServerAddress::parse(bad, speech).unwrap_err().to_string();
                assert!(error.starts_with(&format!("--url {bad}: ")), "{error}");
            }
        }
        ServerAddress::parse("http://127.0.0.1/", Speech::WebSocket).unwrap_err();
        ServerAddress::parse("ws://127.0.0.1/", Speech::Http).unwrap_err();
    }

    #[test]
    fn a_password_is_not_shown() {
        for url in ["http://me:hunter2@bus.example.com/", "http://me:hunter2@", "me:hunter2@a b"] {
            let error = ServerAddress::parse(url, Speech::Http).unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
