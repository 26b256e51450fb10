//! Which server a command talks to, and who it is there.

use std::env;
use std::path::PathBuf;

use prombus_client::transport::{AddressError, HttpClient, Protocol, ServerAddress};

/// What every command takes that talks to a server's gateway.
#[derive(clap::Args)]
pub(super) struct GatewayArguments {
    /// The server's WebSocket gateway
    #[arg(long, value_name = "URL", default_value = "ws://127.0.0.1:8090/")]
    pub(super) url: String,
    #[command(flatten)]
    pub(super) access: AccessArguments,
}

/// What every command takes that talks to a server's HTTP port.
#[derive(clap::Args)]
pub(super) struct HttpArguments {
    /// The server's HTTP address
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8083")]
    pub(super) url: String,
    #[command(flatten)]
    pub(super) access: AccessArguments,
}

/// Who we are, and whom we trust.
#[derive(clap::Args)]
pub(super) struct AccessArguments {
    /// Authenticate with this token; others on this machine cannot see it when it comes from
    /// PROMBUS_TOKEN in the environment instead
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
    /// Trust the certificates in this PEM file, beside those that the system trusts (for wss and
    /// https)
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
}

impl GatewayArguments {
    /// Where it is.
    pub(super) fn address(&self) -> Result<ServerAddress, String> {
        self.access.address(&self.url, Protocol::WebSocket)
    }

    /// The client for it that lasts, through lost connections.
    pub(super) fn client(&self) -> Result<prombus_client::Builder, String> {
        self.address()?;
        let mut client = prombus_client::Client::builder(&self.url);
        if let Some(token) = self.access.token() {
            client = client.token(token);
        }
        if let Some(file) = &self.access.ca_file {
            client = client.ca_file(file);
        }
        Ok(client)
    }
}

impl HttpArguments {
    /// A client for it, which connects with the first request.
    pub(super) fn client(&self) -> Result<HttpClient, String> {
        self.access.http(&self.url)
    }
}

impl AccessArguments {
    /// A client for the HTTP port at `url`, which connects with the first request.
    pub(super) fn http(&self, url: &str) -> Result<HttpClient, String> {
        let address = self.address(url, Protocol::Http)?;
        HttpClient::new(address, self.token().as_deref()).map_err(|error| error.to_string())
    }

    /// Where the server at `url` is.
    pub(super) fn address(&self, url: &str, protocol: Protocol) -> Result<ServerAddress, String> {
        ServerAddress::new(url, protocol, self.ca_file.as_deref()).map_err(|error| match error {
            AddressError::BadUrl { .. } => format!("--url {error}"),
            AddressError::BadCaFile { .. } => format!("--ca-file {error}"),
            AddressError::Unreachable { .. } => error.to_string(),
        })
    }

    /// The token, if there is one.
    pub(super) fn token(&self) -> Option<String> {
        let given = self.token.clone().or_else(|| env::var("PROMBUS_TOKEN").ok());
        given.filter(|token| !token.is_empty())
    }
}
