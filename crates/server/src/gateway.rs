//! The WebSocket gateway.
//!
//! | idea | file |
//! |---|---|
//! | requests become WebSockets | `upgrade` |
//! | one connection, from its first frame to its goodbye | `session` |
//! | what its client has here | `client` |
//! | the operations of the protocol, one file each | `command` |
//! | answers, in the order of the frames | `answers` |
//! | its messages, as they come | `socket`, found by `messages` in frames that are found by `incoming` |
//! | frames that wait to be written | `outgoing`, `wire` |
//! | why a connection is closed | [`close_code`] |

mod answers;
mod client;
pub mod close_code;
mod command;
mod incoming;
mod messages;
mod outgoing;
mod session;
mod socket;
pub(crate) mod upgrade;
mod wire;

use std::sync::Arc;

use bytes::Bytes;
use prombus_bus::Bus;
use prombus_proto::Clock;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use crate::auth::{AllowedOrigins, Authenticator};
use crate::config;

use session::Session;

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
    pub settings: config::GatewayConfig,
}

/// Serves a stream that has become a WebSocket, to its end. `read_ahead` is what was read of it
/// already.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send>(
    stream: S,
    read_ahead: Bytes,
    gateway: Arc<Gateway>,
    stopping: watch::Receiver<bool>,
) {
    let session = Session::over(stream, &read_ahead, gateway, stopping);
    // Even an empty one may hold on to the whole buffer that the request was read into.
    drop(read_ahead);
    let end = Box::pin(session.run()).await;
    tracing::debug!(?end, "a connection ended");
}
