//! The TLS of both ports: the certificate of the server, and those of its clients.

use std::path::Path;
use std::sync::Arc;

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use crate::config::{ClientAuth, TlsConfig};
use crate::server::StartError;

/// Reads the files and checks that they fit together.
pub(crate) fn server_config(tls: &TlsConfig) -> Result<ServerConfig, StartError> {
    let key = PrivateKeyDer::from_pem_file(&tls.key_file)
        .map_err(|error| unusable(&tls.key_file, &error))?;
    let builder = ServerConfig::builder();
    let builder = match &tls.client_auth {
        ClientAuth::Off => builder.with_no_client_auth(),
        ClientAuth::Optional { ca_file } | ClientAuth::Required { ca_file } => {
            let roots = Arc::new(trusted_roots(ca_file)?);
            let verifier = WebPkiClientVerifier::builder(roots);
            let verifier = match &tls.client_auth {
                ClientAuth::Optional { .. } => verifier.allow_unauthenticated(),
                _ => verifier,
            };
            let verifier = verifier.build().map_err(|error| unusable(ca_file, &error))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder
        .with_single_cert(certificates(&tls.cert_file)?, key)
        .map_err(|error| unusable(&tls.cert_file, &error))?;
    if tls.client_auth != ClientAuth::Off {
        // A resumed session would not verify the client's certificate again.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(config)
}

fn trusted_roots(ca_file: &Path) -> Result<RootCertStore, StartError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(ca_file)? {
        roots.add(certificate).map_err(|error| unusable(ca_file, &error))?;
    }
    Ok(roots)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, StartError> {
    CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unusable(file, &error))
}

fn unusable(path: &Path, reason: &impl ToString) -> StartError {
    StartError::Tls { path: path.to_owned(), reason: reason.to_string() }
}
