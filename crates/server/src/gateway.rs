//! The WebSocket gateway.
//!
//! | module | |
//! |---|---|
//! | `upgrade` | turns an HTTP request into a WebSocket |
//! | `session` | one connection: reads frames, writes answers and deliveries |
//! | `deadlines` | the timeouts of a session |
//! | `client` | the state of one client, and the dispatch of its frames; one file per operation |
//! | `frame_room` | the memory of frames that are arriving or not answered |
//! | `answers` | pending answers, in frame order |
//! | `socket` | a WebSocket over a stream: `messages` and `incoming` read it, `wire` and `outgoing` write it |
//! | [`close_code`] | the reasons for closing a connection |

mod answers;
mod client;
pub mod close_code;
mod deadlines;
mod frame_room;
mod incoming;
mod messages;
mod outgoing;
mod session;
mod socket;
pub(crate) mod upgrade;
mod wire;

use std::sync::Arc;

use bytes::Bytes;
use prombus_bus::{Bus, Refusal};
use prombus_proto::Clock;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use crate::accept::Arrival;
use crate::access::Access;
use crate::auth::{Grant, Login, Logins};
use crate::config;
use crate::phase::Phase;
use crate::swap::Swap;

use session::Session;

/// State shared by all connections.
pub struct Gateway {
    pub bus: Arc<Bus>,
    /// Replaced by a reload.
    pub(crate) access: Swap<Access>,
    pub logins: Logins,
    /// Decides when tokens expire.
    pub clock: Arc<dyn Clock>,
    pub settings: config::GatewayConfig,
}

impl Gateway {
    /// Returns who may do what, as configured now.
    #[must_use]
    pub fn access(&self) -> Arc<Access> {
        self.access.load()
    }

    /// Returns what a token allows.
    pub(crate) fn log_in(&self, login: Login<'_>) -> Result<Grant, Refusal> {
        let (access, now) = (self.access(), self.clock.now());
        self.logins.log_in(&access.authenticator, login, self.bus.metrics(), now)
    }
}

/// Serves an upgraded stream until the connection ends. `read_ahead` is what the HTTP server has
/// already read past the request.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send>(
    stream: S,
    arrival: Arrival,
    read_ahead: Bytes,
    gateway: Arc<Gateway>,
    phases: watch::Receiver<Phase>,
) {
    let session = Session::new(stream, &arrival, &read_ahead, gateway, phases);
    // Even an empty slice keeps the whole buffer of the request alive.
    drop(read_ahead);
    let end = Box::pin(session.run()).await;
    tracing::debug!(?end, "connection ended");
}
