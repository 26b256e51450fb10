//! Whether a client has its connection.

use crate::Error;

/// How it stands with a client's connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionState {
    /// There is none yet.
    Connecting,
    /// The server is there, and takes what is sent.
    Connected,
    /// It was lost or not found, and is tried again.
    Disconnected {
        /// Why.
        reason: String,
        /// How many tries in a row went wrong.
        failures: u32,
    },
    /// There will be none any more: the client is closed, or cannot go on.
    Ended(Error),
}
