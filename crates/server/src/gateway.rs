//! The WebSocket gateway.
//!
//! | idea | file |
//! |---|---|
//! | connections are accepted, and become WebSockets | `accept`, `upgrade` |
//! | one connection, from its first frame to its goodbye | `session` |
//! | what its client has here | `client` |
//! | the operations of the protocol, one file each | `command` |
//! | answers, in the order of the frames | `answers` |
//! | frames that wait to be written | `outgoing`, `wire` |
//! | why a connection is closed | [`close_code`] |

mod accept;
mod answers;
mod client;
pub mod close_code;
mod command;
mod outgoing;
mod session;
mod upgrade;
mod wire;

use std::sync::Arc;

use prombus_bus::Bus;
use prombus_proto::Clock;

use crate::auth::{AllowedOrigins, Authenticator};
use crate::config;

pub use accept::serve;

/// What all connections share.
pub struct Gateway {
    /// Where events go and come from.
    pub bus: Arc<Bus>,
    /// Who may do what.
    pub authenticator: Authenticator,
    /// Which web pages may connect.
    pub origins: AllowedOrigins,
    /// For what expires.
    pub clock: Arc<dyn Clock>,
    /// Sizes and times.
    pub settings: config::Gateway,
}
