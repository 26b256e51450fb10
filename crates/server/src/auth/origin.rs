//! Which web pages may connect.
//!
//! A browser lets any page open a WebSocket to any server and sends the page's origin in `Origin`.
//! Rejecting foreign pages is up to the server.

use thiserror::Error;

/// The origins that may connect in addition to the server's own host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedOrigins {
    all: bool,
    null: bool,
    listed: Vec<Origin>,
    rebinding_protection: bool,
}

/// A configured origin that no browser would send.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "an allowed origin is `scheme://host` or `scheme://host:port` without a path, `null`, or `*` \
     for all, not {0:?}"
)]
pub struct InvalidOrigin(pub String);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "pages of this origin may not connect; list the origin in auth.allowed_origins to allow it"
)]
pub struct OriginRefused;

impl AllowedOrigins {
    /// Parses the configured list: origins, `null`, or `*` for all.
    pub fn new<S: AsRef<str>>(list: &[S]) -> Result<Self, InvalidOrigin> {
        let mut allowed = Self::default();
        for text in list.iter().map(AsRef::as_ref) {
            match text {
                "*" => allowed.all = true,
                "null" => allowed.null = true,
                _ => allowed
                    .listed
                    .push(Origin::parse(text).ok_or_else(|| InvalidOrigin(text.to_owned()))?),
            }
        }
        Ok(allowed)
    }

    /// Protects a server without tokens from DNS rebinding: a page of the server's own host must name
    /// it by an IP address or as `localhost`, because the owner of any other name can point it here.
    #[must_use]
    pub fn with_rebinding_protection(mut self) -> Self {
        self.rebinding_protection = true;
        self
    }

    /// Checks the `Origin` and `Host` of a request. A client without `Origin` is not a browser and may
    /// connect.
    pub fn check(&self, origin: Option<&str>, host: Option<&str>) -> Result<(), OriginRefused> {
        let allowed = match origin {
            None => true,
            Some(_) if self.all => true,
            Some("null") => self.null,
            Some(text) => Origin::parse(text).is_some_and(|origin| {
                let is_own = host.is_some_and(|host| origin.is_same_host(host))
                    && (!self.rebinding_protection || is_trusted_host(&origin.host));
                is_own || self.listed.contains(&origin)
            }),
        };
        if allowed { Ok(()) } else { Err(OriginRefused) }
    }

    /// Checks the `Host` of a request for DNS rebinding. Needed for requests without `Origin`, which a
    /// page may send to its own host.
    #[must_use]
    pub fn accepts_host(&self, host: Option<&str>) -> bool {
        if !self.rebinding_protection || self.all {
            return true;
        }
        host.is_none_or(|host| {
            host_and_port(host).is_some_and(|(host, _)| {
                is_trusted_host(&host) || self.listed.iter().any(|listed| listed.host == host)
            })
        })
    }
}

/// Lower-case, with the default port of the scheme filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Origin {
    scheme: String,
    host: String,
    port: Option<u16>,
}

impl Origin {
    fn parse(text: &str) -> Option<Self> {
        let (scheme, authority) = text.split_once("://")?;
        let is_scheme = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
        if scheme.is_empty() || !scheme.chars().all(is_scheme) {
            return None;
        }
        let scheme = scheme.to_ascii_lowercase();
        let (host, port) = host_and_port(authority)?;
        let port = port.or(default_port(&scheme));
        Some(Self { scheme, host, port })
    }

    /// Returns `true` if `Host` names the origin itself.
    ///
    /// A `Host` without a port means the default port. Behind a proxy that terminates TLS, only the
    /// scheme of the origin tells which port that is.
    fn is_same_host(&self, host_header: &str) -> bool {
        let Some(default) = default_port(&self.scheme) else {
            return false;
        };
        host_and_port(host_header).is_some_and(|(host, port)| {
            host == self.host && Some(port.unwrap_or(default)) == self.port
        })
    }
}

/// Returns `true` for hosts that nobody can point to another machine: IP addresses and `localhost`.
fn is_trusted_host(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    host == "localhost" || host.ends_with(".localhost") || host.parse::<std::net::IpAddr>().is_ok()
}

fn default_port(scheme: &str) -> Option<u16> {
    match scheme {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    }
}

fn host_and_port(authority: &str) -> Option<(String, Option<u16>)> {
    // An IPv6 address has colons of its own, within brackets.
    let end_of_host = authority.find(']').map_or(0, |bracket| bracket + 1);
    let (host, port) = match authority[end_of_host..].find(':') {
        Some(colon) => {
            let (host, port) = authority.split_at(end_of_host + colon);
            (host, Some(parse_port(&port[1..])?))
        }
        None => (authority, None),
    };
    let is_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            !host.is_empty()
                && host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'))
        }
    };
    is_host.then(|| (host.to_ascii_lowercase(), port))
}

fn parse_port(text: &str) -> Option<u16> {
    // `parse` would accept a plus sign.
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(list: &[&str], origin: Option<&str>, host: Option<&str>) -> bool {
        AllowedOrigins::new(list).unwrap().check(origin, host).is_ok()
    }

    #[test]
    fn allows_clients_without_an_origin() {
        assert!(allowed(&[], None, Some("bus.example:8090")));
        assert!(allowed(&["https://app.example"], None, None));
    }

    #[test]
    fn allows_pages_of_the_same_host_and_port() {
        for (origin, host, expected) in [
            ("http://localhost:8083", "localhost:8083", true),
            ("http://localhost:8083", "localhost:8090", false),
            ("http://localhost:8083", "127.0.0.1:8083", false),
            ("http://LocalHost:8083", "localhost:8083", true),
            ("http://bus.example", "bus.example", true),
            ("http://bus.example", "bus.example:80", true),
            ("http://bus.example:80", "bus.example", true),
            ("https://bus.example", "BUS.example", true),
            ("https://bus.example", "bus.example:443", true),
            ("https://bus.example", "bus.example:80", false),
            ("https://bus.example", "bus.example:8090", false),
            ("https://bus.example:8090", "bus.example", false),
            ("https://evil.example", "bus.example", false),
            ("https://bus.example.evil.example", "bus.example", false),
            ("https://evilbus.example", "bus.example", false),
            ("http://[::1]:8083", "[::1]:8083", true),
            ("http://[::1]", "[::1]:80", true),
            ("http://[::1]:8083", "[::2]:8083", false),
            ("ftp://bus.example", "bus.example", false),
            ("null", "null", false),
            ("http://null", "null", true),
            ("", "", false),
            ("http://", "", false),
            ("http://bus.example/", "bus.example", false),
            ("http://bus.example@evil.example", "evil.example", false),
            ("http://bus.example:+80", "bus.example", false),
            ("http://bus.example:", "bus.example", false),
            ("http://bus.example:99999", "bus.example:99999", false),
            ("http://[bus.example]", "[bus.example]", false),
            ("http://]:[", "]:[", false),
            ("http://bus.example, http://bus.example", "bus.example", false),
        ] {
            assert_eq!(allowed(&[], Some(origin), Some(host)), expected, "{origin} to {host}");
        }
        assert!(!allowed(&[], Some("http://bus.example"), None));
    }

    #[test]
    fn allows_listed_pages() {
        let list = ["https://App.example", "http://localhost:3000", "tauri://localhost"];
        for (origin, expected) in [
            ("https://app.example", true),
            ("HTTPS://APP.EXAMPLE", true),
            ("https://app.example:443", true),
            ("http://app.example", false),
            ("https://app.example:8443", false),
            ("https://sub.app.example", false),
            ("http://localhost:3000", true),
            ("http://localhost:3001", false),
            ("tauri://localhost", true),
            ("other://localhost", false),
            ("null", false),
        ] {
            assert_eq!(allowed(&list, Some(origin), Some("bus:8090")), expected, "{origin}");
        }
    }

    #[test]
    fn a_star_allows_all_and_null_must_be_listed() {
        for origin in ["https://any.example", "null", "nonsense"] {
            assert!(allowed(&["*"], Some(origin), None), "{origin}");
        }
        assert!(allowed(&["null"], Some("null"), None));
        assert!(!allowed(&["null"], Some("https://any.example"), None));
    }

    #[test]
    fn rejects_entries_that_no_browser_sends() {
        for bad in ["app.example", "https://app.example/", "https://app.example/x", "", "https://*"]
        {
            let error = AllowedOrigins::new(&[bad]).unwrap_err();
            assert_eq!(error, InvalidOrigin(bad.to_owned()));
        }
    }

    #[test]
    fn rebinding_protection_requires_an_address_in_the_origin() {
        let open =
            AllowedOrigins::new(&["http://app.example"]).unwrap().with_rebinding_protection();
        for (origin, host, allowed) in [
            ("http://evil.example:8090", "evil.example:8090", false),
            ("http://127.0.0.1:8090", "127.0.0.1:8090", true),
            ("http://[::1]:8090", "[::1]:8090", true),
            ("http://localhost:8090", "localhost:8090", true),
            ("http://app.localhost", "app.localhost", true),
            ("http://app.example", "app.example", true),
            ("http://127.0.0.1:8090", "evil.example:8090", false),
        ] {
            assert_eq!(open.check(Some(origin), Some(host)).is_ok(), allowed, "{origin} {host}");
        }
        let with_tokens = AllowedOrigins::default();
        assert!(with_tokens.check(Some("http://bus.example"), Some("bus.example")).is_ok());
    }

    #[test]
    fn rebinding_protection_requires_an_address_in_the_host() {
        let open =
            AllowedOrigins::new(&["https://app.example"]).unwrap().with_rebinding_protection();
        for (host, accepted) in [
            (None, true),
            (Some("127.0.0.1:8083"), true),
            (Some("[::1]:8083"), true),
            (Some("LOCALHOST"), true),
            (Some("app.example:8083"), true),
            (Some("evil.example:8083"), false),
            (Some("127.0.0.1.evil.example"), false),
            (Some(""), false),
        ] {
            assert_eq!(open.accepts_host(host), accepted, "{host:?}");
        }
        let all = AllowedOrigins::new(&["*"]).unwrap().with_rebinding_protection();
        assert!(all.accepts_host(Some("evil.example")));
        assert!(AllowedOrigins::default().accepts_host(Some("bus.example")));
    }
}
