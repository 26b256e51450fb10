//! The address of a server: one URL is enough for both of its protocols.

use hyper::Uri;
use prombus_client::transport::Protocol;

/// The ports on which a server listens by default.
const GATEWAY_PORT: u16 = 8090;
const HTTP_PORT: u16 = 8083;
/// The gateway's path on the HTTP port. The gateway's own port has it too.
const GATEWAY_PATH: &str = "/ws";

/// A URL of either protocol, from which the address for the other is derived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ServerUrl {
    /// The server that `prombus serve` starts without settings.
    Default,
    Given {
        url: String,
        protocol: Protocol,
    },
}

impl ServerUrl {
    /// Checks the scheme only; connecting checks the rest.
    pub(super) fn parse(url: &str) -> Result<Self, String> {
        let protocol = match url.split_once("://").map(|(scheme, _)| scheme) {
            Some("http" | "https") => Protocol::Http,
            Some("ws" | "wss") => Protocol::WebSocket,
            _ => {
                let url = without_credentials(url);
                return Err(format!(
                    "{url}: a URL starts with http://, https://, ws:// or wss://; for example \
                     http://127.0.0.1:8083 or https://bus.example.com"
                ));
            }
        };
        Ok(Self::Given { url: url.to_owned(), protocol })
    }

    /// Returns the URL of the WebSocket gateway.
    pub(super) fn gateway(&self) -> String {
        match self {
            Self::Default => format!("ws://127.0.0.1:{GATEWAY_PORT}/"),
            Self::Given { url, protocol: Protocol::WebSocket } => url.clone(),
            Self::Given { url, protocol: Protocol::Http } => {
                let (path, query) = match url.split_once('?') {
                    Some((path, query)) => (path, format!("?{query}")),
                    None => (url.as_str(), String::new()),
                };
                // http becomes ws, https becomes wss
                let path = path.replacen("http", "ws", 1);
                format!("{}{GATEWAY_PATH}{query}", path.trim_end_matches('/'))
            }
        }
    }

    /// Returns the URL of the HTTP API.
    ///
    /// # Errors
    ///
    /// The HTTP port cannot be derived from the port of the gateway.
    pub(super) fn http(&self) -> Result<String, String> {
        let url = match self {
            Self::Default => return Ok(format!("http://127.0.0.1:{HTTP_PORT}")),
            Self::Given { url, protocol: Protocol::Http } => return Ok(url.clone()),
            Self::Given { url, protocol: Protocol::WebSocket } => url,
        };
        let parsed: Option<Uri> = url.parse().ok();
        let authority = parsed.as_ref().and_then(Uri::authority);
        let (Some(uri), Some(authority)) = (&parsed, authority) else {
            return Err(format!("{}: not a URL", without_credentials(url)));
        };
        let scheme = if uri.scheme_str() == Some("wss") { "https" } else { "http" };
        let host = authority.host();
        let path = uri.path().trim_end_matches('/');
        let prefix = path.strip_suffix(GATEWAY_PATH);
        match (authority.port_u16(), prefix) {
            (Some(GATEWAY_PORT), _) => {
                Ok(format!("{scheme}://{host}:{HTTP_PORT}{}", prefix.unwrap_or(path)))
            }
            // The gateway's path on the HTTP port, or a proxy in front of both ports.
            (_, Some(prefix)) => Ok(format!("{scheme}://{authority}{prefix}")),
            (None, None) => Ok(format!("{scheme}://{authority}{path}")),
            (Some(_), None) => Err(format!(
                "{} is the address of a WebSocket gateway, and this command uses HTTP: pass the \
                 server's HTTP address, such as {scheme}://{host}:{HTTP_PORT}, which serves every \
                 command",
                without_credentials(url)
            )),
        }
    }
}

/// Removes everything before the `@`, which may contain a password.
fn without_credentials(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://…@{host}"),
        (None, Some((_, host))) => format!("…@{host}"),
        (_, None) => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_protocol_is_derived_from_the_other() {
        for (url, gateway, http) in [
            ("http://a:8083", "ws://a:8083/ws", "http://a:8083"),
            ("https://a/bus/", "wss://a/bus/ws", "https://a/bus/"),
            ("http://http.example:1", "ws://http.example:1/ws", "http://http.example:1"),
            ("ws://a:8090/", "ws://a:8090/", "http://a:8083"),
            ("ws://[::1]:8090", "ws://[::1]:8090", "http://[::1]:8083"),
            ("wss://a:8090/ws", "wss://a:8090/ws", "https://a:8083"),
            ("wss://a:9/bus/ws", "wss://a:9/bus/ws", "https://a:9/bus"),
            ("wss://bus.example.com/", "wss://bus.example.com/", "https://bus.example.com"),
        ] {
            let parsed = ServerUrl::parse(url).unwrap();
            assert_eq!(parsed.gateway(), gateway, "{url}");
            assert_eq!(parsed.http().as_deref(), Ok(http), "{url}");
        }
        assert_eq!(ServerUrl::Default.gateway(), "ws://127.0.0.1:8090/");
        assert_eq!(ServerUrl::Default.http().as_deref(), Ok("http://127.0.0.1:8083"));
    }

    #[test]
    fn an_unknown_gateway_port_says_what_to_pass() {
        let error = ServerUrl::parse("wss://a:9000/").unwrap().http().unwrap_err();
        assert!(error.contains("such as https://a:8083"), "{error}");
    }

    #[test]
    fn rejects_other_schemes_and_hides_passwords() {
        for url in ["", "a:8083", "ftp://a", "me:hunter2@a"] {
            let error = ServerUrl::parse(url).unwrap_err();
            assert!(error.contains("starts with http://") && !error.contains("hunter2"), "{error}");
        }
        let error = ServerUrl::parse("ws://me:hunter2@a:9/").unwrap().http().unwrap_err();
        assert!(!error.contains("hunter2"), "{error}");
    }
}
