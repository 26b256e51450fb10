//! A server, over WebSockets, by frames that are written and read as text.
//!
//! Many frames leave with one write and come with one read, and none is parsed further than the
//! figures need: what is measured is to be the server.
//!
//! | idea | file |
//! |---|---|
//! | frames out and in, together | `socket` |
//! | what a frame of the server says, seen from its text | `glimpse` |
//! | a connection that publishes | `publishing` |
//! | a connection that consumes | `consuming` |

mod consuming;
mod frame_peek;
mod publishing;
mod socket;

use futures_util::{StreamExt, TryStreamExt, stream};
use hyper::Method;
use prombus_client::transport::{HttpClient, Query, ServerAddress};
use prombus_proto::Topic;

pub(crate) use consuming::WireConsumer;
pub(crate) use frame_peek::{Glimpse, refusal};
pub(crate) use publishing::WirePublisher;
pub(crate) use socket::Socket;

use crate::BenchError;

/// More at once would run into the limit of what a listener has waiting.
pub(crate) const OPENED_AT_ONCE: usize = 64;

/// Where a server is, and who we are there.
#[derive(Clone)]
pub struct Wire {
    gateway: ServerAddress,
    token: Option<String>,
}

impl Wire {
    /// The server with this gateway.
    #[must_use]
    pub const fn new(gateway: ServerAddress, token: Option<String>) -> Self {
        Self { gateway, token }
    }

    pub(crate) async fn open(&self) -> Result<Socket, BenchError> {
        Socket::open(&self.gateway, self.token.as_deref()).await
    }

    /// The same connection, if the server answers there.
    pub(crate) async fn alive(&self, mut socket: Socket) -> Result<Socket, BenchError> {
        // Any AUTH is answered OK where no token is needed.
        socket.authenticate(self.token.as_deref().unwrap_or("anybody")).await?;
        Ok(socket)
    }

    /// So many connections, a few of them opened at a time.
    pub(crate) async fn open_many(&self, count: usize) -> Result<Vec<Socket>, BenchError> {
        stream::iter(0..count)
            .map(|_| self.open())
            .buffer_unordered(OPENED_AT_ONCE)
            .try_collect()
            .await
    }
}

/// Makes events of these topics as safe as `word` says, `fsync` or `buffered`, on the server that
/// `http` talks to.
pub async fn set_durability(
    http: &mut HttpClient,
    topics: &[Topic],
    word: &str,
) -> Result<(), BenchError> {
    for topic in topics {
        let path = Query::of(&format!("/topics/{topic}"));
        let body = format!(r#"{{"durability":"{word}"}}"#);
        http.send(Method::PUT, path.as_str(), "application/json", body.into()).await?;
    }
    Ok(())
}
