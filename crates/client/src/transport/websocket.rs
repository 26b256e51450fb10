//! A WebSocket to a server's gateway.

use thiserror::Error;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use super::{AddressError, CONNECT_TIMEOUT, ServerAddress, Stream};

/// A WebSocket, over whatever its URL said.
pub type WebSocket = WebSocketStream<Box<dyn Stream>>;

/// The largest frame from a server: an event at the store's hard end, and what is around it.
const MAX_FRAME_BYTES: usize = 32 << 20;

/// How much is read at a time. The library clears that much before each read; its usual 128 KiB took a fifth of
/// two processors with a thousand connections at ten events a second.
const READ_BYTES: usize = 16 << 10;

/// Why there is no WebSocket.
#[derive(Debug, Error)]
pub enum WebSocketError {
    /// Nobody is there.
    #[error(transparent)]
    NotReached(#[from] AddressError),
    /// Somebody is there who does not speak it.
    #[error("{url} does not speak WebSocket to us: {reason}")]
    NotSpoken {
        /// Where.
        url: String,
        /// What they say instead.
        reason: String,
    },
}

/// Opens one, in no more than [`CONNECT_TIMEOUT`].
pub async fn open_websocket(address: &ServerAddress) -> Result<WebSocket, WebSocketError> {
    let opening = async {
        let stream = address.connect().await?;
        let limit = Some(MAX_FRAME_BYTES);
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BYTES)
            .max_message_size(limit)
            .max_frame_size(limit);
        client_async_with_config(address.url(), stream, Some(config))
            .await
            .map_err(|error| not_spoken(address.url(), &error))
    };
    let (socket, _) =
        timeout(CONNECT_TIMEOUT, opening).await.map_err(|_| address.timed_out())??;
    Ok(socket)
}

fn not_spoken(url: &str, error: &tungstenite::Error) -> WebSocketError {
    let reason = match error {
        tungstenite::Error::Http(response) => {
            let body = response.body().as_deref().map(String::from_utf8_lossy).unwrap_or_default();
            format!("it answers {} {}", response.status(), body.trim())
        }
        other => other.to_string(),
    };
    WebSocketError::NotSpoken { url: url.to_owned(), reason }
}
