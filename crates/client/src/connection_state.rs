//! The state of a client's connection.

use crate::Error;

/// The state of a client's connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionState {
    /// The first connection is being opened.
    Connecting,
    /// Connected, and authenticated if there is a token.
    Connected,
    /// The connection was lost or could not be opened. The client tries again.
    Disconnected {
        /// What went wrong.
        reason: String,
        /// Failed attempts in a row.
        failures: u32,
    },
    /// The client has ended and does not connect again. [`Error::Ended`] if it was closed.
    Ended(Error),
}
