//! The arguments for connecting to a server.

use std::env;
use std::path::PathBuf;

use prombus_client::transport::{AddressError, HttpClient, Protocol, ServerAddress};

/// For commands that use the WebSocket gateway.
#[derive(clap::Args)]
pub(super) struct GatewayArguments {
    /// WebSocket URL of the server
    #[arg(long, value_name = "URL", default_value = "ws://127.0.0.1:8090/")]
    pub(super) url: String,
    #[command(flatten)]
    pub(super) access: AccessArguments,
}

/// For commands that use the HTTP API.
#[derive(clap::Args)]
pub(super) struct HttpArguments {
    /// HTTP URL of the server
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8083")]
    pub(super) url: String,
    #[command(flatten)]
    pub(super) access: AccessArguments,
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

impl GatewayArguments {
    pub(super) fn address(&self) -> Result<ServerAddress, String> {
        self.access.address(&self.url, Protocol::WebSocket)
    }

    /// Returns a builder of a client that reconnects automatically.
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
    pub(super) fn client(&self) -> Result<HttpClient, String> {
        self.access.http(&self.url)
    }
}

impl AccessArguments {
    /// Returns a client for the HTTP API at `url`. It connects with its first request.
    pub(super) fn http(&self, url: &str) -> Result<HttpClient, String> {
        let address = self.address(url, Protocol::Http)?;
        HttpClient::new(address, self.token().as_deref()).map_err(|error| error.to_string())
    }

    pub(super) fn address(&self, url: &str, protocol: Protocol) -> Result<ServerAddress, String> {
        ServerAddress::new(url, protocol, self.ca_file.as_deref()).map_err(|error| match error {
            AddressError::BadUrl { .. } => format!("--url {error}"),
            AddressError::BadCaFile { .. } => format!("--ca-file {error}"),
            AddressError::Unreachable { .. } => error.to_string(),
        })
    }

    pub(super) fn token(&self) -> Option<String> {
        let given = self.token.clone().or_else(|| env::var("PROMBUS_TOKEN").ok());
        given.filter(|token| !token.is_empty())
    }
}
