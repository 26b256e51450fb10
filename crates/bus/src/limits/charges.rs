//! Tokens that were taken for something that may still fail.

use std::sync::Arc;

use super::ConnectionLimit;
use super::connection_limit::lookup_tokens;
use crate::bus::{Bus, Connection};
use crate::error::Refusal;
use crate::time::now;
use crate::topics::TopicInUse;

/// Tokens that were taken, and return when this is dropped, unless `Charges::keep` says that what they
/// were taken for has happened.
#[derive(Debug, Default)]
pub struct Charges(Vec<Charge>);

#[derive(Debug)]
struct Charge {
    connection: ConnectionLimit,
    /// `None` for tokens of the connection only.
    topic: Option<Arc<TopicInUse>>,
    tokens: u64,
    bytes: u64,
}

impl Charges {
    pub(crate) const fn none() -> Self {
        Self(Vec::new())
    }

    /// Adds tokens of a connection alone.
    pub(crate) fn of_connection(connection: &ConnectionLimit, tokens: u64) -> Self {
        let mut charges = Self::none();
        charges.add(connection, None, tokens, 0);
        charges
    }

    /// Adds tokens and bytes that were taken. Without limits there is nothing to add.
    pub(crate) fn add(
        &mut self,
        connection: &ConnectionLimit,
        topic: Option<&Arc<TopicInUse>>,
        tokens: u64,
        bytes: u64,
    ) {
        if connection.is_off() && topic.is_none_or(|topic| topic.limit.is_off()) {
            return;
        }
        if let Some(last) = self.0.last_mut()
            && last.connection.is_same(connection)
            && last.topic.as_ref().map(Arc::as_ptr) == topic.map(Arc::as_ptr)
        {
            last.tokens += tokens;
            last.bytes += bytes;
            return;
        }
        let (connection, topic) = (connection.clone(), topic.cloned());
        self.0.push(Charge { connection, topic, tokens, bytes });
    }

    /// Moves the charges of `other` here.
    pub fn append(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    /// Keeps the tokens: what they were taken for has happened.
    pub fn keep(mut self) {
        self.0.clear();
    }
}

impl Bus {
    /// Takes `tokens` from a connection and its principal.
    ///
    /// # Errors
    ///
    /// If the connection or its principal has too few tokens.
    pub fn charge(&self, connection: &Connection, tokens: u64) -> Result<Charges, Refusal> {
        connection
            .limit
            .try_take(tokens, now())
            .inspect_err(|limited| self.throttled(connection, limited.scope, tokens, None))?;
        Ok(Charges::of_connection(&connection.limit, tokens))
    }

    /// Takes the tokens of a connection for a lookup of `count` ids, such as [`Bus::seen`].
    ///
    /// # Errors
    ///
    /// If the connection or its principal has too few tokens.
    pub fn charge_lookup(&self, connection: &Connection, count: usize) -> Result<(), Refusal> {
        self.charge(connection, lookup_tokens(count)).map(Charges::keep)
    }
}

impl Drop for Charges {
    fn drop(&mut self) {
        for Charge { connection, topic, tokens, bytes } in self.0.drain(..) {
            connection.give_back(tokens);
            connection.give_bytes_back(bytes);
            if let Some(topic) = topic {
                topic.limit.give_back(tokens);
            }
        }
    }
}
