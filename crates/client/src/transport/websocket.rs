//! A WebSocket to a server's gateway.

use thiserror::Error;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use super::plain_stream::is_from_tls_server;
use super::{AddressError, CONNECT_TIMEOUT, ServerAddress, Stream};

/// A WebSocket over TCP or TLS.
pub type WebSocket = WebSocketStream<Box<dyn Stream>>;

/// Above the largest event that a server stores, and the frame around it.
const MAX_FRAME_BYTES: usize = 32 << 20;

/// The library zeroes this much before each read. Its default of 128 KiB took a fifth of two
/// processors with a thousand connections at ten events per second.
const READ_BYTES: usize = 16 << 10;

/// Why a WebSocket could not be opened.
#[derive(Debug, Error)]
pub enum WebSocketError {
    /// The server cannot be reached.
    #[error(transparent)]
    NotReached(#[from] AddressError),
    /// The peer does not accept the WebSocket handshake.
    #[error("WebSocket handshake with {url} failed: {reason}")]
    Handshake {
        /// The URL of the gateway.
        url: String,
        /// The peer's answer, or what is wrong with it.
        reason: String,
    },
}

impl WebSocketError {
    /// Returns `true` if another attempt may succeed.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::NotReached(error) => matches!(error, AddressError::Unreachable { .. }),
            Self::Handshake { .. } => true,
        }
    }
}

/// Opens a WebSocket within [`CONNECT_TIMEOUT`].
///
/// # Errors
///
/// Fails if the server cannot be reached in time, or if it does not accept the handshake.
pub async fn open_websocket(address: &ServerAddress) -> Result<WebSocket, WebSocketError> {
    let opening = async {
        let stream = address.connect().await?;
        let limit = Some(MAX_FRAME_BYTES);
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BYTES)
            .max_message_size(limit)
            .max_frame_size(limit);
        client_async_with_config(address.url(), stream, Some(config)).await.map_err(|error| {
            match is_from_tls_server(&error) {
                true => address.wrong_scheme(true).into(),
                false => handshake_error(address.url(), &error),
            }
        })
    };
    let (socket, _) =
        timeout(CONNECT_TIMEOUT, opening).await.map_err(|_| address.timeout_error())??;
    Ok(socket)
}

fn handshake_error(url: &str, error: &tungstenite::Error) -> WebSocketError {
    let reason = match error {
        tungstenite::Error::Http(response) => {
            let body = response.body().as_deref().map(String::from_utf8_lossy).unwrap_or_default();
            format!("the server answered {} {}", response.status(), body.trim())
        }
        other => other.to_string(),
    };
    WebSocketError::Handshake { url: url.to_owned(), reason }
}
