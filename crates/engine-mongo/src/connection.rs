//! From a URL to a database that can be used.

pub(crate) mod deployment;

use std::time::Duration;

use mongodb::options::ClientOptions;
use mongodb::{Client, Database};

use crate::connection::deployment::Deployment;
use crate::{MongoError, MongoOptions};

const DEFAULT_DATABASE: &str = "prombus";
const DEFAULT_APP_NAME: &str = "prombus";
/// How long starting up waits for a primary, unless the URL says otherwise. Once running, the
/// driver's 30 seconds apply, which is longer than an election takes.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(10);
/// The driver's default of ten is too few: the change stream occupies one, and every commit that
/// waits for a disk occupies another.
const DEFAULT_POOL_SIZE: u32 = 100;

/// A client connected to one database.
pub(crate) struct Connection {
    pub(crate) client: Client,
    /// The application name under which the servers list this client.
    pub(crate) app_name: String,
    pub(crate) database: Database,
    pub(crate) deployment: Deployment,
}

impl Connection {
    pub(crate) async fn open(options: &MongoOptions) -> Result<Self, MongoError> {
        let mut client_options = parse(&options.url).await?;
        let app_name = client_options.app_name.get_or_insert_with(|| DEFAULT_APP_NAME.to_owned());
        let app_name = app_name.clone();
        client_options.max_pool_size.get_or_insert(DEFAULT_POOL_SIZE);
        let mut startup_options = client_options.clone();
        startup_options.server_selection_timeout.get_or_insert(STARTUP_TIMEOUT);
        let startup_client = Client::with_options(startup_options)?;
        let deployment = Deployment::of(&startup_client.database("admin")).await?;
        drop(startup_client);
        let client = Client::with_options(client_options)?;
        let database = match &options.database {
            Some(name) => client.database(name),
            None => client.default_database().unwrap_or_else(|| client.database(DEFAULT_DATABASE)),
        };
        Ok(Self { client, app_name, database, deployment })
    }
}

/// Creates a client for `url` that the server's logs list as `app_name`, for other crates of this
/// workspace.
///
/// Does not wait for a server: the first operation reports an unreachable one.
///
/// # Errors
///
/// [`MongoError::InvalidAddress`], without the password, if the URL cannot be parsed.
pub async fn connect(url: &str, app_name: &str) -> Result<Client, MongoError> {
    let mut options = parse(url).await?;
    options.app_name.get_or_insert_with(|| app_name.to_owned());
    Ok(Client::with_options(options)?)
}

/// Parses `url`. The driver's error may quote the URL, so user and password are masked in it.
async fn parse(url: &str) -> Result<ClientOptions, MongoError> {
    ClientOptions::parse(url).await.map_err(|error| {
        let message = MongoError::from(error).to_string();
        let credentials = url.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@'));
        match credentials {
            Some((credentials, _)) if !credentials.is_empty() => {
                let secrets = credentials.split(':').filter(|part| !part.is_empty());
                let masked =
                    secrets.fold(message, |message, secret| message.replace(secret, "***"));
                MongoError::InvalidAddress(masked)
            }
            _ => MongoError::InvalidAddress(message),
        }
    })
}
