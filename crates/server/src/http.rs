//! HTTP: everything about topics with `curl` alone.
//!
//! | idea | file |
//! |---|---|
//! | which path is answered where | `router` |
//! | what holds for every request | `port`, `cross_origin` |
//! | who asks, and what about | `caller`, `topic_in_path`, `query` |
//! | what is answered, if it goes well or not | `answer`, `error` |
//! | a request's body, bounded in size and time | `body` |
//! | storing events | `publish` |
//! | reading them: by pages, all at once, as they come | `replay`, `export`, `stream` (from where: `start`) |
//! | what is there, and the settings of topics | `topics`, `groups`, `latest_by_key` |
//! | the way to the gateway | `websocket` |
//! | whether the server is there and well, and what it counts | `health`, `metrics`, `counted_body` |
//! | what there is, for machines and for people | `openapi`, `docs` |

mod answer;
mod body;
mod caller;
mod counted_body;
mod cross_origin;
mod docs;
mod error;
mod export;
mod groups;
mod health;
mod latest_by_key;
mod metrics;
mod openapi;
mod port;
mod publish;
mod query;
mod replay;
mod router;
mod start;
mod stream;
mod topic_in_path;
mod topics;
mod websocket;

use std::sync::Arc;

use prombus_bus::{Bus, Connection, OpenConnection};
use prombus_proto::Timestamp;
use prombus_proto::limits::MAX_BATCH_BYTES;
use tokio::sync::{Semaphore, watch};

use crate::gateway::Gateway;
use crate::listening::Arrival;

pub(crate) use port::HttpPort;

/// What all requests share.
pub(crate) struct Http {
    /// Bus, tokens, origins and sizes are the same as for WebSockets.
    gateway: Arc<Gateway>,
    /// Whether only this machine can connect, so that names of other machines are suspicious.
    is_local: bool,
    /// Whether the server is about to stop. What streams without an end has to watch this.
    stopping: watch::Receiver<bool>,
    /// Room for requests of many events, which are in memory as a whole until they are stored.
    many_events: Semaphore,
}

/// How many bytes of them there may be: four of the largest.
const MANY_EVENTS_BYTES: usize = 4 * MAX_BATCH_BYTES;

/// Who sends requests: one connection. An extension of each of its requests.
struct Peer {
    /// Its place at the bus: the bucket that its requests share.
    connection: Connection,
    arrival: Arrival,
    /// It is counted as long as it is there.
    _open: OpenConnection,
}

impl Http {
    pub(crate) fn new(
        gateway: Arc<Gateway>,
        is_local: bool,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        let many_events = Semaphore::new(MANY_EVENTS_BYTES);
        Self { gateway, is_local, stopping, many_events }
    }

    fn bus(&self) -> &Bus {
        &self.gateway.bus
    }

    fn now(&self) -> Timestamp {
        self.gateway.clock.now()
    }
}
