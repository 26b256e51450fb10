//! Client certificates as an identity.
//!
//! The TLS layer has verified the certificate. Here its names decide what its holder may do.

use std::fmt;

use prombus_proto::Timestamp;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::grant::Grant;
use super::scope::Scopes;

/// A name in a certificate: `CN=…`, `DNS=…` or `URI=…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateName {
    /// The common name of the subject.
    Common(String),
    /// A DNS name of the subject, in lower case.
    Dns(String),
    /// A URI of the subject, such as a SPIFFE id.
    Uri(String),
}

impl CertificateName {
    /// Parses the form in which the configuration names a certificate.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, name) = text.split_once('=').filter(|(_, name)| !name.is_empty())?;
        match kind {
            "CN" => Some(Self::Common(name.to_owned())),
            "DNS" => Some(Self::Dns(name.to_ascii_lowercase())),
            "URI" => Some(Self::Uri(name.to_owned())),
            _ => None,
        }
    }
}

impl fmt::Display for CertificateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Common(name) => write!(f, "CN={name}"),
            Self::Dns(name) => write!(f, "DNS={name}"),
            Self::Uri(name) => write!(f, "URI={name}"),
        }
    }
}

/// The verified certificate of a client: what of it decides over rights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    names: Vec<CertificateName>,
    expires_at: Timestamp,
}

impl ClientCertificate {
    /// Reads a verified certificate. Returns `None` if it cannot be parsed.
    #[must_use]
    pub fn from_der(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let mut names = Vec::new();
        let mut common = certificate.subject().iter_common_name();
        // With two, it would be unclear which of them the issuer checked.
        if let (Some(name), None) = (common.next(), common.next()) {
            names.extend(name.as_str().ok().map(|name| CertificateName::Common(name.to_owned())));
        }
        if let Some(alternative) = certificate.subject_alternative_name().ok()? {
            names.extend(alternative.value.general_names.iter().filter_map(|name| match name {
                GeneralName::DNSName(name) => Some(CertificateName::Dns(name.to_ascii_lowercase())),
                GeneralName::URI(name) => Some(CertificateName::Uri((*name).to_owned())),
                _ => None,
            }));
        }
        let seconds = u64::try_from(certificate.validity().not_after.timestamp()).ok()?;
        Some(Self { names, expires_at: Timestamp(seconds.saturating_mul(1000)) })
    }
}

/// Maps certificates to scopes. If several entries match, the first decides.
#[derive(Debug, Default)]
pub struct CertificateScopes {
    entries: Vec<(CertificateName, Scopes)>,
}

impl CertificateScopes {
    /// Adds an entry. Returns `false` if the name is already present.
    #[must_use]
    pub fn add(&mut self, name: CertificateName, scopes: Scopes) -> bool {
        let is_new = self.entries.iter().all(|(present, _)| *present != name);
        if is_new {
            self.entries.push((name, scopes));
        }
        is_new
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns what the certificate allows, until it expires.
    #[must_use]
    pub fn find(&self, certificate: &ClientCertificate) -> Option<Grant> {
        let (name, scopes) =
            self.entries.iter().find(|(name, _)| certificate.names.contains(name))?;
        let name = name.to_string();
        Some(Grant::of_certificate(&name, scopes.clone(), certificate.expires_at))
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    fn certificate(common: &[&str], alternative: Vec<SanType>) -> ClientCertificate {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for name in common {
            params.distinguished_name.push(DnType::CommonName, *name);
        }
        params.subject_alt_names = alternative;
        params.not_after = rcgen::date_time_ymd(2033, 5, 18);
        let key = KeyPair::generate().unwrap();
        ClientCertificate::from_der(params.self_signed(&key).unwrap().der()).unwrap()
    }

    #[test]
    fn reads_common_names_dns_names_and_uris() {
        let alternative = vec![
            SanType::DnsName("Billing.internal".try_into().unwrap()),
            SanType::URI("spiffe://prod/billing".try_into().unwrap()),
        ];
        let read = certificate(&["billing"], alternative);
        let names: Vec<_> = read.names.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["CN=billing", "DNS=billing.internal", "URI=spiffe://prod/billing"]);
        assert_eq!(read.expires_at, Timestamp(1_999_987_200_000));
        assert_eq!(certificate(&[], vec![]).names, []);
    }

    #[test]
    fn the_first_entry_that_matches_decides() {
        let scopes = |text: &str| Scopes::new(&text.into()).unwrap();
        let name = |text| CertificateName::parse(text).unwrap();
        let mut entries = CertificateScopes::default();
        assert!(entries.is_empty());
        assert!(entries.add(name("DNS=BILLING.internal"), scopes("publish:a")));
        assert!(entries.add(name("CN=billing"), scopes("publish:b")));
        assert!(!entries.add(name("DNS=billing.internal"), scopes("admin")));
        let alternative = vec![SanType::DnsName("billing.INTERNAL".try_into().unwrap())];
        let both = entries.find(&certificate(&["billing"], alternative)).unwrap();
        assert_eq!(both.scopes, scopes("publish:a"));
        assert_eq!(both.name(), Some("DNS=billing.internal"));
        assert_eq!(
            entries.find(&certificate(&["billing"], vec![])).unwrap().scopes,
            scopes("publish:b")
        );
        for other in ["Billing", "billing.internal", "billing ", ""] {
            assert_eq!(entries.find(&certificate(&[other], vec![])), None, "{other}");
        }
    }

    #[test]
    fn parses_names_of_the_configuration() {
        for bad in ["", "CN", "CN=", "billing", "cn=billing", "O=billing", "=billing"] {
            assert_eq!(CertificateName::parse(bad), None, "{bad}");
        }
        let uri = CertificateName::parse("URI=spiffe://prod/billing?a=b");
        assert_eq!(uri, Some(CertificateName::Uri("spiffe://prod/billing?a=b".to_owned())));
    }
}
