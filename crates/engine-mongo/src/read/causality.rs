//! A reader sees at least what this engine has written, or was told of.

use std::sync::{Mutex, PoisonError};

use mongodb::bson::Timestamp;
use mongodb::error::Error;
use mongodb::{Client, ClientSession};

/// The latest moment of the database that somebody here knows of.
///
/// Readers see what a majority has. A buffered commit is answered before that, so whoever reads after
/// it has to wait until the majority is as far.
#[derive(Debug, Default)]
pub(crate) struct Causality(Mutex<Option<Timestamp>>);

impl Causality {
    pub(crate) fn reached(&self, moment: Option<Timestamp>) {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *latest = (*latest).max(moment);
    }

    /// A session whose reads are not before that moment.
    pub(crate) async fn session(&self, client: &Client) -> Result<ClientSession, Error> {
        let mut session = client.start_session().causal_consistency(true).await?;
        let latest = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(moment) = latest {
            session.advance_operation_time(moment);
        }
        Ok(session)
    }
}
