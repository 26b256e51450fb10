//! A server over WebSockets.
//!
//! Frames are written and read as text, many with one system call, and are parsed only as far as
//! necessary, so that the bench measures the server and not its client.
//!
//! - `socket`: sends and receives frames
//! - `frame_peek`: recognizes the server's frames without parsing them
//! - `publishing`: a connection that publishes
//! - `consuming`: a connection that consumes

mod consuming;
mod frame_peek;
mod publishing;
mod socket;

use futures_util::{StreamExt, TryStreamExt, stream};
use hyper::Method;
use prombus_client::transport::{HttpClient, Query, ServerAddress};
use prombus_proto::Topic;

pub(crate) use consuming::WireConsumer;
pub(crate) use frame_peek::{FramePeek, frame_error};
pub(crate) use publishing::WirePublisher;
pub(crate) use socket::Socket;

use crate::BenchError;

/// More would exceed the listener's backlog.
pub(crate) const OPENED_AT_ONCE: usize = 64;

/// The gateway of a server, and the token to authenticate with.
#[derive(Clone)]
pub struct Wire {
    gateway: ServerAddress,
    token: Option<String>,
}

impl Wire {
    #[must_use]
    pub const fn new(gateway: ServerAddress, token: Option<String>) -> Self {
        Self { gateway, token }
    }

    pub(crate) async fn open(&self) -> Result<Socket, BenchError> {
        Socket::open(&self.gateway, self.token.as_deref()).await
    }

    /// Returns the connection if the server answers on it.
    pub(crate) async fn check_alive(&self, mut socket: Socket) -> Result<Socket, BenchError> {
        // A server without authentication answers OK to any AUTH.
        socket.authenticate(self.token.as_deref().unwrap_or("anybody")).await?;
        Ok(socket)
    }

    /// Opens `count` connections, a few at a time.
    pub(crate) async fn open_many(&self, count: usize) -> Result<Vec<Socket>, BenchError> {
        stream::iter(0..count)
            .map(|_| self.open())
            .buffer_unordered(OPENED_AT_ONCE)
            .try_collect()
            .await
    }
}

/// Sets the durability of these topics to `fsync` or `buffered`.
pub async fn set_durability(
    http: &mut HttpClient,
    topics: &[Topic],
    durability: &str,
) -> Result<(), BenchError> {
    for topic in topics {
        let path = Query::of(&format!("/topics/{topic}"));
        let body = format!(r#"{{"durability":"{durability}"}}"#);
        http.send(Method::PUT, path.as_str(), "application/json", body.into()).await?;
    }
    Ok(())
}
