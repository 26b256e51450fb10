//! From an address to a database that can be used.

pub(crate) mod deployment;

use std::time::Duration;

use mongodb::options::ClientOptions;
use mongodb::{Client, Database};

use crate::connection::deployment::Deployment;
use crate::{MongoError, MongoOptions};

const DATABASE_UNLESS_SAID: &str = "prombus";
/// Whoever starts waits no longer than this for a server that takes writes, unless the address says
/// otherwise. Later on, what is under way waits the driver's 30 seconds, longer than an election takes.
const START_WITHIN: Duration = Duration::from_secs(10);
/// The driver's own ten are few: one belongs to the change stream, and commits that wait for a disk
/// hold theirs.
const CONNECTIONS_UNLESS_SAID: u32 = 100;

/// A database, and what it is part of.
pub(crate) struct Connected {
    pub(crate) client: Client,
    /// What the servers know it by.
    pub(crate) app_name: String,
    pub(crate) database: Database,
    pub(crate) deployment: Deployment,
}

impl Connected {
    pub(crate) async fn to(options: &MongoOptions) -> Result<Self, MongoError> {
        let mut connection = parse(&options.url).await?;
        let app_name = connection.app_name.get_or_insert_with(|| DATABASE_UNLESS_SAID.to_owned());
        let app_name = app_name.clone();
        connection.max_pool_size.get_or_insert(CONNECTIONS_UNLESS_SAID);
        let mut starting = connection.clone();
        starting.server_selection_timeout.get_or_insert(START_WITHIN);
        let first = Client::with_options(starting)?;
        let deployment = Deployment::of(&first.database("admin")).await?;
        drop(first);
        let client = Client::with_options(connection)?;
        let database = match &options.database {
            Some(name) => client.database(name),
            None => {
                client.default_database().unwrap_or_else(|| client.database(DATABASE_UNLESS_SAID))
            }
        };
        Ok(Self { client, app_name, database, deployment })
    }
}

/// Connects to what is at `url`, under this name in the server's logs, for other programs of ours. What
/// is wrong with the address is said without its password. Whether somebody is there is known with the
/// first question.
pub async fn connect(url: &str, name: &str) -> Result<Client, MongoError> {
    let mut options = parse(url).await?;
    options.app_name.get_or_insert_with(|| name.to_owned());
    Ok(Client::with_options(options)?)
}

/// What the driver makes of the address. What it says of a bad one may repeat it, password and all.
async fn parse(url: &str) -> Result<ClientOptions, MongoError> {
    ClientOptions::parse(url).await.map_err(|error| {
        let said = MongoError::from(error).to_string();
        let secret = url.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@'));
        match secret {
            Some((secret, _)) if !secret.is_empty() => {
                let parts = secret.split(':').filter(|part| !part.is_empty());
                let hidden = parts.fold(said, |said, part| said.replace(part, "***"));
                MongoError::InvalidAddress(hidden)
            }
            _ => MongoError::InvalidAddress(said),
        }
    })
}
