//! Certificates made for the tests, and clients that show them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::gateway::client::Client;
use crate::gateway::running::{Running, started};
use crate::http::client::HttpClient;

pub(crate) struct Authority {
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

pub(crate) struct Issued {
    pub(crate) certificate: Certificate,
    key: KeyPair,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Self { certificate, issuer: Issuer::new(params, key) }
    }

    /// Issues a certificate for `localhost`.
    pub(crate) fn server(&self) -> Issued {
        let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        self.issue(params, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// Issues a certificate with this common name.
    pub(crate) fn client(&self, common_name: &str) -> Issued {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, common_name);
        self.issue(params, ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn issue(&self, mut params: CertificateParams, purpose: ExtendedKeyUsagePurpose) -> Issued {
        params.extended_key_usages = vec![purpose];
        let key = KeyPair::generate().unwrap();
        Issued { certificate: params.signed_by(&key, &self.issuer).unwrap(), key }
    }

    pub(crate) fn write(&self, file: &Path) {
        std::fs::write(file, self.certificate.pem()).unwrap();
    }
}

impl Issued {
    pub(crate) fn write(&self, files: &Path) {
        std::fs::write(files.join("cert.pem"), self.certificate.pem()).unwrap();
        std::fs::write(files.join("key.pem"), self.key.serialize_pem()).unwrap();
    }
}

/// A server with a certificate of `authority`, which issues those of its clients as well.
pub(crate) struct Mutual {
    pub(crate) running: Running,
    pub(crate) authority: Authority,
    pub(crate) files: TempDir,
}

impl Mutual {
    pub(crate) async fn start(client_auth: &str, set: &[&str]) -> Self {
        let files = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        authority.server().write(files.path());
        authority.write(&files.path().join("ca.pem"));
        let mut all = Self::settings(files.path(), client_auth);
        all.extend(set.iter().map(|&text| text.to_owned()));
        let all: Vec<_> = all.iter().map(String::as_str).collect();
        Self { running: started(&all).await, authority, files }
    }

    pub(crate) fn settings(files: &Path, client_auth: &str) -> Vec<String> {
        let file =
            |key: &str, name: &str| format!("server.tls.{key}={}", files.join(name).display());
        let mut settings = vec![file("cert_file", "cert.pem"), file("key_file", "key.pem")];
        if client_auth != "off" {
            settings.push(format!("server.tls.client_auth={client_auth}"));
            settings.push(file("client_ca_file", "ca.pem"));
        }
        settings
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    fn connector(&self, shows: Option<&Issued>) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.certificate.der().clone()).unwrap();
        let config = ClientConfig::builder().with_root_certificates(roots);
        let config = match shows {
            None => config.with_no_client_auth(),
            Some(Issued { certificate, key }) => {
                let chain = vec![CertificateDer::from(certificate.der().to_vec())];
                let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
                config.with_client_auth_cert(chain, key).unwrap()
            }
        };
        TlsConnector::from(Arc::new(config))
    }

    pub(crate) async fn handshake(
        &self,
        stream: TcpStream,
        shows: Option<&Issued>,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from("localhost").unwrap();
        self.connector(shows).connect(name, stream).await
    }

    pub(crate) async fn connect(&self, shows: Option<&Issued>) -> Client {
        let stream = self.handshake(self.running.tcp().await, shows).await.unwrap();
        Client::over(stream, "wss://localhost/").await
    }

    /// Returns `true` if a client that shows this certificate gets through to the gateway.
    pub(crate) async fn accepts(&self, shows: Option<&Issued>) -> bool {
        // With TLS 1.3, a client learns of its refusal when it reads for the first time.
        match self.handshake(self.running.tcp().await, shows).await {
            Ok(stream) => tokio_tungstenite::client_async("wss://localhost/", stream).await.is_ok(),
            Err(_) => false,
        }
    }

    pub(crate) async fn http(&self, shows: Option<&Issued>) -> HttpClient {
        let stream = TcpStream::connect(self.running.server.http()).await.unwrap();
        HttpClient::over(self.handshake(stream, shows).await.unwrap(), "localhost").await
    }

    /// Returns the certificate that the server shows.
    pub(crate) async fn shown(&self) -> CertificateDer<'static> {
        let stream = self.handshake(self.running.tcp().await, None).await.unwrap();
        stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
    }
}
