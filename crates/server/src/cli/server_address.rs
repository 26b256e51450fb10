//! Which server a command talks to, and the stream to it.

use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_tungstenite::tungstenite::http::Uri;

use super::connection::ConnectionError;

/// What every command takes that talks to a server.
#[derive(clap::Args)]
pub(super) struct ServerArguments {
    /// The server's WebSocket gateway
    #[arg(long, value_name = "URL", default_value = "ws://127.0.0.1:8090/")]
    pub(super) url: String,
    /// Authenticate with this token; others on this machine cannot see it when it comes from
    /// PROMBUS_TOKEN in the environment instead
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
    /// Trust the certificates in this PEM file, beside those that the system trusts (for wss)
    #[arg(long, value_name = "FILE")]
    pub(super) ca_file: Option<PathBuf>,
}

impl ServerArguments {
    /// The token, if there is one.
    pub(super) fn token(&self) -> Option<String> {
        let given = self.token.clone().or_else(|| env::var("PROMBUS_TOKEN").ok());
        given.filter(|token| !token.is_empty())
    }
}

/// What a WebSocket runs over.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// Where a server is.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ServerAddress {
    url: String,
    host: String,
    port: u16,
    is_encrypted: bool,
}

impl ServerAddress {
    pub(super) fn parse(url: &str) -> Result<Self, ConnectionError> {
        let bad = |reason: &str| ConnectionError::BadUrl {
            url: url.to_owned(),
            reason: reason.to_owned(),
        };
        let uri: Uri = url.parse().map_err(|_| bad("not a URL"))?;
        let is_encrypted = match uri.scheme_str() {
            Some("ws") => false,
            Some("wss") => true,
            _ => return Err(bad("a gateway's URL begins with ws:// or wss://")),
        };
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(|| bad("no host"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = uri.port_u16().unwrap_or(if is_encrypted { 443 } else { 80 });
        Ok(Self { url: url.to_owned(), host, port, is_encrypted })
    }

    /// A stream to it, encrypted if its URL says so.
    pub(super) async fn connect(
        &self,
        ca_file: Option<&Path>,
    ) -> Result<Box<dyn Stream>, ConnectionError> {
        let tls = if self.is_encrypted { Some(tls_connector(ca_file)?) } else { None };
        let unreachable = |source| ConnectionError::Unreachable { url: self.url.clone(), source };
        let stream =
            TcpStream::connect((self.host.as_str(), self.port)).await.map_err(unreachable)?;
        // Frames are put together by us; they need not wait for more.
        stream.set_nodelay(true).map_err(unreachable)?;
        let Some(tls) = tls else { return Ok(Box::new(stream)) };
        let name = ServerName::try_from(self.host.clone())
            .map_err(|error| unreachable(io::Error::other(error)))?;
        Ok(Box::new(tls.connect(name, stream).await.map_err(unreachable)?))
    }
}

fn tls_connector(ca_file: Option<&Path>) -> Result<TlsConnector, ConnectionError> {
    let mut roots = RootCertStore::empty();
    // A system without roots of its own may still be given some.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = ca_file {
        let bad = |reason: String| ConnectionError::BadCaFile {
            path: path.display().to_string(),
            reason,
        };
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
        for (url, host, port, is_encrypted) in [
            ("ws://127.0.0.1:8090/", "127.0.0.1", 8090, false),
            ("ws://localhost", "localhost", 80, false),
            ("wss://bus.example.com/ws", "bus.example.com", 443, true),
            ("wss://[::1]:9/", "::1", 9, true),
        ] {
            let address = ServerAddress::parse(url).unwrap();
            let expected =
                ServerAddress { url: url.to_owned(), host: host.to_owned(), port, is_encrypted };
            assert_eq!(address, expected);
        }
        for bad in ["", "127.0.0.1:8090", "http://127.0.0.1/", "ws://", "ws:///x", "ws://a b/"] {
            let error = ServerAddress::parse(bad).unwrap_err().to_string();
            assert!(error.starts_with(&format!("--url {bad}: ")), "{error}");
        }
    }
}
