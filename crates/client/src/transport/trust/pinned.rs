//! Accepts a certificate that the user trusts by itself.

use std::collections::HashSet;
use std::sync::Arc;

use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::client::{WebPkiServerVerifier, verify_server_name};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};

/// Verifies as usual, except that a server may show one of the trusted certificates itself, although that is the
/// certificate of a CA. `openssl req -x509` makes such certificates.
#[derive(Debug)]
pub(super) struct PinnedVerifier {
    pub(super) usual: Arc<WebPkiServerVerifier>,
    pub(super) pinned: HashSet<CertificateDer<'static>>,
}

impl ServerCertVerifier for PinnedVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.usual.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        match verified {
            // A CA's certificate is no server's, for which there is no variant. Its time has been checked before,
            // its name has not.
            Err(Error::InvalidCertificate(CertificateError::Other(_)))
                if self.pinned.contains(end_entity) =>
            {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.usual.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.usual.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.usual.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};
    use tokio_rustls::rustls::RootCertStore;

    use super::*;

    /// In 2026.
    const NOW: Duration = Duration::from_secs(1_780_000_000);

    fn self_signed(is_ca: IsCa, names: &[&str], until: i32) -> CertificateDer<'static> {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.is_ca = is_ca;
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().clone()
    }

    fn verify(shown: &CertificateDer<'_>, trusted: &CertificateDer<'static>) -> Result<(), Error> {
        let mut roots = RootCertStore::empty();
        roots.add(trusted.clone()).unwrap();
        let usual = WebPkiServerVerifier::builder(Arc::new(roots)).build().unwrap();
        let verifier = PinnedVerifier { usual, pinned: HashSet::from([trusted.clone()]) };
        let name = ServerName::try_from("bus.example").unwrap();
        let now = UnixTime::since_unix_epoch(NOW);
        verifier.verify_server_cert(shown, &[], &name, &[], now).map(drop)
    }

    const CA: IsCa = IsCa::Ca(BasicConstraints::Unconstrained);

    #[test]
    fn a_self_signed_certificate_is_trusted_whether_it_is_a_cas_or_not() {
        for is_ca in [CA, IsCa::NoCa, IsCa::ExplicitNoCa] {
            let own = self_signed(is_ca, &["bus.example"], 2030);
            assert_eq!(verify(&own, &own), Ok(()));
            let other = self_signed(is_ca, &["bus.example"], 2030);
            verify(&other, &own).unwrap_err();
        }
    }

    #[test]
    fn its_name_and_time_count() {
        for is_ca in [CA, IsCa::NoCa] {
            for names in [&[][..], &["other.example"]] {
                let own = self_signed(is_ca, names, 2030);
                let error = verify(&own, &own).unwrap_err().to_string();
                assert!(error.contains("not valid for name"), "{error}");
            }
            let own = self_signed(is_ca, &["bus.example"], 2025);
            let error = verify(&own, &own).unwrap_err().to_string();
            assert!(error.contains("expired"), "{error}");
        }
    }
}
