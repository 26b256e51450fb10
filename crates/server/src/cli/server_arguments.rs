//! The arguments for connecting to a server, and where a command takes them from.
//!
//! A flag wins over the environment, the environment over the current context, and that over the default. A
//! token of a context goes to the server of that context and to no other.

use std::env;
use std::fmt;
use std::path::PathBuf;

use prombus_client::transport::{AddressError, HttpClient, Protocol, ServerAddress};

use super::contexts::{Context, ContextName, ContextsFile};
use super::server_url::ServerUrl;

/// For commands that use the WebSocket gateway.
#[derive(clap::Args)]
pub(super) struct GatewayArguments {
    #[command(flatten)]
    server: ServerArguments,
}

/// For commands that use the HTTP API.
#[derive(clap::Args)]
pub(super) struct HttpArguments {
    #[command(flatten)]
    server: ServerArguments,
}

/// The server, and how to log in there.
#[derive(clap::Args)]
pub(super) struct ServerArguments {
    /// URL of the server: http, https, ws or wss [env: PROMBUS_URL] [default: http://127.0.0.1:8083]
    #[arg(long, value_name = "URL", conflicts_with = "context")]
    url: Option<String>,
    /// Use the server of this context; see prombus context [env: PROMBUS_CONTEXT]
    #[arg(long, value_name = "NAME")]
    context: Option<ContextName>,
    #[command(flatten)]
    access: AccessArguments,
}

/// Authentication and trust.
#[derive(clap::Args)]
pub(super) struct AccessArguments {
    /// Authentication token; prefer PROMBUS_TOKEN in the environment, which other users cannot see
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
    /// PEM file of CA certificates to trust for wss and https, in addition to the system's
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
}

/// A server as a command connects to it.
pub(super) struct Endpoint {
    url: ServerUrl,
    origin: UrlOrigin,
    token: Option<String>,
    ca_file: Option<PathBuf>,
}

/// Where the URL comes from, for errors.
#[derive(Clone, Debug, PartialEq, Eq)]
enum UrlOrigin {
    Flag,
    Environment,
    Context(ContextName),
    Default,
}

impl fmt::Display for UrlOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("--url "),
            Self::Environment => f.write_str("PROMBUS_URL "),
            Self::Context(name) => write!(f, "context {name}: "),
            Self::Default => Ok(()),
        }
    }
}

impl GatewayArguments {
    pub(super) fn endpoint(&self) -> Result<Endpoint, String> {
        self.server.endpoint()
    }

    /// Returns a builder of a client that reconnects automatically.
    pub(super) fn client(&self) -> Result<prombus_client::Builder, String> {
        let endpoint = self.endpoint()?;
        endpoint.gateway()?;
        let mut client = prombus_client::Client::builder(&endpoint.url.gateway());
        if let Some(token) = endpoint.token {
            client = client.token(token);
        }
        if let Some(file) = endpoint.ca_file {
            client = client.ca_file(file);
        }
        Ok(client)
    }
}

impl HttpArguments {
    /// Returns a client for the HTTP API. It connects with its first request.
    pub(super) fn client(&self) -> Result<HttpClient, String> {
        self.endpoint()?.http()
    }

    pub(super) fn endpoint(&self) -> Result<Endpoint, String> {
        self.server.endpoint()
    }
}

impl ServerArguments {
    pub(super) fn endpoint(&self) -> Result<Endpoint, String> {
        let url_variable = variable("PROMBUS_URL");
        if let Some(url) = &self.url {
            return self.access.endpoint(url, UrlOrigin::Flag);
        }
        match (&self.context, url_variable) {
            (Some(name), _) => {
                let file = ContextsFile::locate()?.read()?;
                self.with_context(name, file.get(name)?, true)
            }
            (None, Some(url)) => self.access.endpoint(&url, UrlOrigin::Environment),
            (None, None) => self.of_default_context(),
        }
    }

    /// Returns the endpoint of `PROMBUS_CONTEXT`, of the current context, or the default one.
    fn of_default_context(&self) -> Result<Endpoint, String> {
        if let Some(name) = variable("PROMBUS_CONTEXT") {
            let name: ContextName = name.parse().map_err(|e| format!("PROMBUS_CONTEXT: {e}"))?;
            let file = ContextsFile::locate()?.read()?;
            return self.with_context(&name, file.get(&name)?, false);
        }
        // Without a home folder there are no contexts.
        let Ok(file) = ContextsFile::locate() else { return Ok(self.access.default_endpoint()) };
        let contexts = file.read()?;
        match contexts.current() {
            Some(name) => self.with_context(name, contexts.get(name)?, false),
            None => Ok(self.access.default_endpoint()),
        }
    }

    /// Returns the endpoint of a context. A context that a flag names wins over `PROMBUS_TOKEN`.
    fn with_context(
        &self,
        name: &ContextName,
        context: &Context,
        is_flag: bool,
    ) -> Result<Endpoint, String> {
        let origin = UrlOrigin::Context(name.clone());
        let url = ServerUrl::parse(&context.url).map_err(|error| format!("{origin}{error}"))?;
        let of_context = || context.token().map_err(|error| format!("{origin}{error}"));
        let token = match (&self.access.token, variable("PROMBUS_TOKEN")) {
            (Some(_), _) => self.access.token(),
            (None, variable) if is_flag => of_context()?.or(variable),
            (None, Some(variable)) => Some(variable),
            (None, None) => of_context()?,
        };
        let ca_file = self.access.ca_file.clone().or_else(|| context.ca_file.clone());
        Ok(Endpoint { url, origin, token, ca_file })
    }
}

impl AccessArguments {
    /// Returns the endpoint of a URL that was given as `--url`.
    pub(super) fn at(&self, url: &str) -> Result<Endpoint, String> {
        self.endpoint(url, UrlOrigin::Flag)
    }

    fn endpoint(&self, url: &str, origin: UrlOrigin) -> Result<Endpoint, String> {
        let url = ServerUrl::parse(url).map_err(|error| format!("{origin}{error}"))?;
        Ok(Endpoint { url, origin, token: self.token(), ca_file: self.ca_file.clone() })
    }

    fn default_endpoint(&self) -> Endpoint {
        Endpoint {
            url: ServerUrl::Default,
            origin: UrlOrigin::Default,
            token: self.token(),
            ca_file: self.ca_file.clone(),
        }
    }

    fn token(&self) -> Option<String> {
        let given = self.token.clone().or_else(|| variable("PROMBUS_TOKEN"));
        given.filter(|token| !token.is_empty())
    }
}

impl Endpoint {
    /// Uses another server if neither a flag nor the environment nor a context names one.
    pub(super) fn or_default(mut self, url: &str) -> Result<Self, String> {
        if self.is_default() {
            self.url = ServerUrl::parse(url)?;
        }
        Ok(self)
    }

    /// Returns `true` if nothing names the server.
    pub(super) fn is_default(&self) -> bool {
        self.origin == UrlOrigin::Default
    }

    /// Returns the address of the gateway.
    pub(super) fn gateway(&self) -> Result<ServerAddress, String> {
        self.address(&self.url.gateway(), Protocol::WebSocket)
    }

    /// Returns a client for the HTTP API.
    pub(super) fn http(&self) -> Result<HttpClient, String> {
        let url = self.url.http().map_err(|error| format!("{}{error}", self.origin))?;
        let address = self.address(&url, Protocol::Http)?;
        HttpClient::new(address, self.token()).map_err(|error| error.to_string())
    }

    pub(super) fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    fn address(&self, url: &str, protocol: Protocol) -> Result<ServerAddress, String> {
        let made = ServerAddress::new(url, protocol, self.ca_file.as_deref());
        made.map_err(|error| match error {
            AddressError::BadUrl { .. } => format!("{}{error}", self.origin),
            AddressError::BadCaFile { .. } => format!("--ca-file {error}"),
            _ => error.to_string(),
        })
    }
}

/// Returns an environment variable that is set and not empty.
fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}
