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
use std::time::Duration;

use prombus_bus::Bus;
use prombus_proto::Clock;

use crate::auth::{AllowedOrigins, Authenticator};

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
    pub settings: GatewaySettings,
}

/// Sizes and times of the gateway.
#[derive(Clone, Copy, Debug)]
pub struct GatewaySettings {
    /// The largest frame.
    pub max_frame_bytes: usize,
    /// How much may wait to be written to one connection, answers and events each.
    pub max_outbox_bytes: usize,
    /// How many subscriptions a connection has.
    pub max_subscriptions: usize,
    /// How many connections there are.
    pub max_connections: usize,
    /// How often a ping is sent.
    pub ping_interval: Duration,
    /// How long to wait for the pong.
    pub pong_timeout: Duration,
    /// How long a connection may stay without a valid token where one is needed.
    pub auth_timeout: Duration,
    /// How long a peer may take nothing.
    pub slow_consumer_timeout: Duration,
}
