//! How a connection becomes a WebSocket: on a listener of our own and on a connection that hyper upgrades.
//! Both see the request before anything is accepted.

use std::time::Duration;

use axum::{
    extract::Request,
    http::{HeaderMap, HeaderValue, StatusCode, Version, header},
    response::{IntoResponse, Response},
};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::timeout,
};
use tokio_tungstenite::{
    WebSocketStream, accept_hdr_async_with_config,
    tungstenite::{
        self,
        handshake::{
            derive_accept_key,
            server::{self, ErrorResponse},
        },
        protocol::{Role, WebSocketConfig},
    },
};

use crate::work::MAX_MESSAGE;

const WRITE_BUFFER: usize = 64 * 1024;
/// Has room for the largest message behind a full buffer.
pub const MAX_WRITE_BUFFER: usize = WRITE_BUFFER + 2 * MAX_MESSAGE;
const PATIENCE: Duration = Duration::from_secs(10);

/// `room` is the size of the read buffer, which every connection has.
pub fn config(room: usize) -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(room)
        .write_buffer_size(WRITE_BUFFER)
        // Without this, pongs for a peer that pings and never reads have no limit.
        .max_write_buffer_size(MAX_WRITE_BUFFER)
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE))
}

/// A page may connect only to the host it came from. Programs send no `Origin`.
fn refusal(path: &str, headers: &HeaderMap) -> Option<StatusCode> {
    if !matches!(path, "/" | "/ws") {
        return Some(StatusCode::NOT_FOUND);
    }
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let origin = headers.contains_key(header::ORIGIN).then(|| {
        let origin = text(header::ORIGIN).unwrap_or_default();
        origin.split_once("://").map_or(origin, |(_, host)| host)
    });
    let allowed = origin.is_none() || origin == text(header::HOST);
    (!allowed).then_some(StatusCode::FORBIDDEN)
}

/// On a bare stream, be it TCP or TLS. A refused client has its status when this returns.
#[allow(clippy::result_large_err)] // the answer is what the callback has to return
pub async fn on_stream<S: AsyncRead + AsyncWrite + Unpin>(
    io: S,
    config: WebSocketConfig,
) -> Result<WebSocketStream<S>, tungstenite::Error> {
    let judge = |request: &server::Request, answer: server::Response| match refusal(
        request.uri().path(),
        request.headers(),
    ) {
        None => Ok(answer),
        Some(status) => {
            let mut answer = ErrorResponse::new(None);
            *answer.status_mut() = status;
            Err(answer)
        }
    };
    let accepted = timeout(PATIENCE, accept_hdr_async_with_config(io, judge, Some(config))).await;
    accepted.unwrap_or_else(|_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()))
}

/// In a handler of hyper or axum. `session` runs as a task once hyper has let go of the connection.
pub fn on_request<F>(
    mut request: Request,
    config: WebSocketConfig,
    session: impl FnOnce(WebSocketStream<TokioIo<Upgraded>>) -> F + Send + 'static,
) -> Response
where
    F: Future<Output = ()> + Send,
{
    let headers = request.headers();
    if let Some(status) = refusal(request.uri().path(), headers) {
        return status.into_response();
    }
    let lists = |name, word: &str| {
        let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|v| v.trim().eq_ignore_ascii_case(word))
    };
    let asks = request.version() == Version::HTTP_11
        && lists(header::CONNECTION, "upgrade")
        && lists(header::UPGRADE, "websocket")
        && lists(header::SEC_WEBSOCKET_VERSION, "13");
    let key = headers.get(header::SEC_WEBSOCKET_KEY).filter(|_| asks);
    let Some(accept) = key.map(|key| derive_accept_key(key.as_bytes())) else {
        return (StatusCode::UPGRADE_REQUIRED, [(header::SEC_WEBSOCKET_VERSION, "13")])
            .into_response();
    };
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        if let Ok(io) = upgrade.await {
            let io = TokioIo::new(io);
            session(WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await).await;
        }
    });
    let headers = [
        (header::CONNECTION, "Upgrade"),
        (header::UPGRADE, "websocket"),
        (header::SEC_WEBSOCKET_ACCEPT, &accept),
    ];
    (StatusCode::SWITCHING_PROTOCOLS, headers).into_response()
}
