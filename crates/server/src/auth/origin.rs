//! Which web pages may connect.
//!
//! A browser lets any page open a WebSocket to any server, and says in `Origin` where the page
//! came from. It is for the server to refuse.

use thiserror::Error;

/// The pages that may connect beside those of the server's own host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedOrigins {
    all: bool,
    null: bool,
    listed: Vec<Origin>,
    distrusts_names: bool,
}

/// A listed origin that no browser would send.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "an allowed origin is `scheme://host` or `scheme://host:port` with nothing behind it, `null`, \
     or `*` for all, not {0:?}"
)]
pub struct InvalidOrigin(pub String);

/// A page from elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("pages of this origin may not connect; the server has a list of allowed origins")]
pub struct OriginRefused;

impl AllowedOrigins {
    /// The list as configured: origins, `null`, or `*` for all.
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

    /// For servers that ask for no token: pages of their own host have to name it by an address or
    /// as `localhost`. Any other name may be one that its owner makes point here (DNS rebinding).
    #[must_use]
    pub fn distrusting_names(mut self) -> Self {
        self.distrusts_names = true;
        self
    }

    /// Decides by the request's headers. Whoever sends no `Origin` is no browser, and may connect.
    pub fn check(&self, origin: Option<&str>, host: Option<&str>) -> Result<(), OriginRefused> {
        let allowed = match origin {
            None => true,
            Some(_) if self.all => true,
            Some("null") => self.null,
            Some(text) => Origin::parse(text).is_some_and(|origin| {
                let is_own = host.is_some_and(|host| origin.is_of_host(host))
                    && (!self.distrusts_names || is_an_address(&origin.host));
                is_own || self.listed.contains(&origin)
            }),
        };
        if allowed { Ok(()) } else { Err(OriginRefused) }
    }

    /// Whether the `Host` of a request that says no `Origin` can be ours. A page may ask its own
    /// host without saying where it came from.
    #[must_use]
    pub fn knows_host(&self, host: Option<&str>) -> bool {
        if !self.distrusts_names || self.all {
            return true;
        }
        host.is_none_or(|host| {
            host_and_port(host).is_some_and(|(host, _)| {
                is_an_address(&host) || self.listed.iter().any(|listed| listed.host == host)
            })
        })
    }
}

/// Lower-case, with the port that is used when none is written.
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
        let port = port.or(usual_port(&scheme));
        Some(Self { scheme, host, port })
    }

    /// Whether a page of this origin talks to the host it came from.
    ///
    /// A `Host` without a port means the usual port of the connection. Behind a proxy that ends
    /// TLS the server does not know which that was; the page's own scheme tells.
    fn is_of_host(&self, host_header: &str) -> bool {
        let Some(usual) = usual_port(&self.scheme) else {
            return false;
        };
        host_and_port(host_header).is_some_and(|(host, port)| {
            host == self.host && Some(port.unwrap_or(usual)) == self.port
        })
    }
}

/// Whether nobody else can make this host point to another machine.
fn is_an_address(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    host == "localhost" || host.ends_with(".localhost") || host.parse::<std::net::IpAddr>().is_ok()
}

fn usual_port(scheme: &str) -> Option<u16> {
    match scheme {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    }
}

fn host_and_port(authority: &str) -> Option<(String, Option<u16>)> {
    // The colons of an IPv6 address stand in brackets.
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
    // `parse` alone would take a plus sign.
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(list: &[&str], origin: Option<&str>, host: Option<&str>) -> bool {
        AllowedOrigins::new(list).unwrap().check(origin, host).is_ok()
    }

    #[test]
    fn whoever_sends_no_origin_is_no_browser() {
        assert!(allowed(&[], None, Some("bus.example:8090")));
        assert!(allowed(&["https://app.example"], None, None));
    }

    #[test]
    fn pages_of_the_same_host_and_port_may_connect() {
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
    fn listed_pages_may_connect() {
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
    fn a_star_allows_all_and_null_is_listed_by_name() {
        for origin in ["https://any.example", "null", "nonsense"] {
            assert!(allowed(&["*"], Some(origin), None), "{origin}");
        }
        assert!(allowed(&["null"], Some("null"), None));
        assert!(!allowed(&["null"], Some("https://any.example"), None));
    }

    #[test]
    fn refuses_a_list_that_could_never_fit() {
        for bad in ["app.example", "https://app.example/", "https://app.example/x", "", "https://*"]
        {
            let error = AllowedOrigins::new(&[bad]).unwrap_err();
            assert_eq!(error, InvalidOrigin(bad.to_owned()));
        }
    }

    #[test]
    fn without_tokens_a_name_that_others_own_is_not_enough() {
        let open = AllowedOrigins::new(&["http://app.example"]).unwrap().distrusting_names();
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
    fn without_tokens_only_hosts_that_nobody_can_make_point_here_are_ours() {
        let open = AllowedOrigins::new(&["https://app.example"]).unwrap().distrusting_names();
        for (host, known) in [
            (None, true),
            (Some("127.0.0.1:8083"), true),
            (Some("[::1]:8083"), true),
            (Some("LOCALHOST"), true),
            (Some("app.example:8083"), true),
            (Some("evil.example:8083"), false),
            (Some("127.0.0.1.evil.example"), false),
            (Some(""), false),
        ] {
            assert_eq!(open.knows_host(host), known, "{host:?}");
        }
        let all = AllowedOrigins::new(&["*"]).unwrap().distrusting_names();
        assert!(all.knows_host(Some("evil.example")));
        assert!(AllowedOrigins::default().knows_host(Some("bus.example")));
    }
}
