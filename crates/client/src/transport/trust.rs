//! Trusted certificates.

mod pinned;

use std::collections::HashSet;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::AddressError;
use pinned::PinnedVerifier;

/// The certificates that TLS connections trust. Cheap to clone.
#[derive(Clone)]
pub struct Trust(Arc<ClientConfig>);

impl Trust {
    /// Loads the system's trusted certificates and those in a PEM file. A server may show a
    /// certificate that one of them has signed, or one that is in the file.
    ///
    /// # Errors
    ///
    /// [`AddressError::BadCaFile`] if the file cannot be read or contains no valid certificate.
    pub fn load(ca_file: Option<&Path>) -> Result<Self, AddressError> {
        let builder = ClientConfig::builder();
        let mut roots = RootCertStore::empty();
        // Errors are ignored: without system certificates, those in the file may be enough.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let Some(path) = ca_file else {
            let config = builder.with_root_certificates(roots).with_no_client_auth();
            return Ok(Self(Arc::new(config)));
        };
        let bad =
            |reason: String| AddressError::BadCaFile { path: path.display().to_string(), reason };
        let pinned = CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect::<Result<HashSet<_>, _>>)
            .map_err(|error| bad(error.to_string()))?;
        if pinned.is_empty() {
            return Err(
                bad("no certificate found; expected PEM with BEGIN CERTIFICATE".to_owned()),
            );
        }
        for certificate in &pinned {
            roots.add(certificate.clone()).map_err(|error| bad(error.to_string()))?;
        }
        let usual = WebPkiServerVerifier::builder(Arc::new(roots)).build();
        let usual = usual.map_err(|error| bad(error.to_string()))?;
        let verifier = Arc::new(PinnedVerifier { usual, pinned });
        let config = builder.dangerous().with_custom_certificate_verifier(verifier);
        Ok(Self(Arc::new(config.with_no_client_auth())))
    }

    pub(super) fn connector(&self) -> TlsConnector {
        TlsConnector::from(Arc::clone(&self.0))
    }
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Trust(…)")
    }
}
