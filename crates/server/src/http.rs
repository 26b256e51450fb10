//! The HTTP API. `openapi.json` describes it, and tests hold the routes to that description.
//!
//! - `router`: the routes and their handlers
//! - `port`, `cors`: checks that every request passes before it is routed
//! - `request_grant`, `path_names`, `query`, `body`, `body_members`: what handlers extract from a request
//! - `response`, `error`: what they return
//! - `publish`: stores events
//! - `replay`, `export`, `stream`, `latest_by_key`: read them; `start` says from where
//! - `damaged`: names events that cannot be read back
//! - `ticket`: issues tickets for web pages
//! - `topics`, `groups`, `dead_letters`: list, configure and repair; `own_task` completes changes
//! - `backup`: a copy of the store
//! - `websocket`: upgrades a request to a gateway connection
//! - `health`, `metrics`, `openapi`, `docs`: the server itself

mod backup;
mod body;
mod body_members;
mod cors;
mod damaged;
mod dead_letters;
mod docs;
mod error;
mod export;
mod groups;
mod health;
mod latest_by_key;
mod metrics;
mod openapi;
mod own_task;
mod path_names;
mod port;
mod publish;
mod query;
mod replay;
mod request_grant;
mod response;
mod router;
mod start;
mod stream;
mod ticket;
mod topics;
mod websocket;

use std::sync::Arc;

use parking_lot::Mutex;
use prombus_bus::{Bus, Connection, OpenConnection};
use prombus_proto::Timestamp;
use tokio::sync::watch;

use crate::accept::NewConnection;
use crate::auth::TokenDigest;
use crate::gateway::Gateway;
use crate::phase::Phase;
use publish::NdjsonMemory;

pub(crate) use port::HttpPort;

/// The state that all requests share.
pub(crate) struct HttpState {
    /// Shares the bus, tokens, allowed origins and size limits with WebSocket connections.
    gateway: Arc<Gateway>,
    /// The port is bound to loopback only, so a `Host` that names another machine is suspicious.
    is_local: bool,
    uses_tls: bool,
    /// Responses without an end must watch it, for the shutdown and for reloads.
    phases: watch::Receiver<Phase>,
    ndjson_memory: NdjsonMemory,
}

/// One HTTP connection. Every request carries its peer as an extension.
struct Peer {
    /// Holds the token bucket that all requests of the connection share.
    connection: Connection,
    accepted: NewConnection,
    /// The token that was accepted last.
    logged_in: Mutex<Option<TokenDigest>>,
    /// Counts the connection in the metrics until it is dropped.
    _open: OpenConnection,
}

impl HttpState {
    pub(crate) fn new(
        gateway: Arc<Gateway>,
        is_local: bool,
        uses_tls: bool,
        phases: watch::Receiver<Phase>,
    ) -> Self {
        let bytes = gateway.settings.ndjson_memory_bytes;
        let ndjson_memory = NdjsonMemory::new(bytes, gateway.bus.metrics());
        Self { gateway, is_local, uses_tls, phases, ndjson_memory }
    }

    fn bus(&self) -> &Bus {
        &self.gateway.bus
    }

    fn now(&self) -> Timestamp {
        self.gateway.clock.now()
    }
}
