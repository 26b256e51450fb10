//! A connection for other programs of ours that use a database of MongoDB.

use mongodb::Client;

use crate::MongoError;
use crate::engine::parse;

/// Connects to what is at `url`, under this name in the server's logs. What is wrong with the address
/// is said without its password. Whether somebody is there is known with the first question.
pub async fn connect(url: &str, name: &str) -> Result<Client, MongoError> {
    let mut options = parse(url).await?;
    options.app_name.get_or_insert_with(|| name.to_owned());
    Ok(Client::with_options(options)?)
}
