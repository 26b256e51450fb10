//! Readers see at least what this engine has written or has learned of.

use mongodb::bson::Timestamp;
use mongodb::error::Error;
use mongodb::{Client, ClientSession};
use parking_lot::Mutex;

/// The latest operation time of the database that this engine knows of.
///
/// Readers see what a majority has. A buffered commit is acknowledged before that, so a later
/// reader has to wait until the majority has caught up.
#[derive(Debug, Default)]
pub(crate) struct Causality(Mutex<Option<Timestamp>>);

impl Causality {
    pub(crate) fn advance_to(&self, operation_time: Option<Timestamp>) {
        let mut latest = self.0.lock();
        *latest = (*latest).max(operation_time);
    }

    /// Starts a session whose reads reflect at least the latest operation time.
    pub(crate) async fn session(&self, client: &Client) -> Result<ClientSession, Error> {
        let mut session = client.start_session().causal_consistency(true).await?;
        let latest = *self.0.lock();
        if let Some(operation_time) = latest {
            session.advance_operation_time(operation_time);
        }
        Ok(session)
    }
}
