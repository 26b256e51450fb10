//! How a request becomes a WebSocket: path, origin and headers are checked before.

use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, Response, StatusCode, Version};
use tokio::sync::mpsc::Sender;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::Gateway;

/// Whether there is room for one more connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    Open,
    Full,
}

/// Answers a request. One that becomes a WebSocket is handed to `upgrades`.
pub(super) fn answer(
    mut request: Request<Incoming>,
    gateway: &Gateway,
    admission: Admission,
    upgrades: &Sender<OnUpgrade>,
) -> Response<String> {
    if let Err((status, reason)) = check(&request, gateway, admission) {
        return refused(status, reason);
    }
    let headers = request.headers();
    let asks = request.version() == Version::HTTP_11
        && lists(headers, &header::CONNECTION, "upgrade")
        && lists(headers, &header::UPGRADE, "websocket")
        && lists(headers, &header::SEC_WEBSOCKET_VERSION, "13");
    let key = headers.get(header::SEC_WEBSOCKET_KEY).filter(|_| asks);
    let Some(accept) = key.map(|key| derive_accept_key(key.as_bytes())) else {
        let mut response =
            refused(StatusCode::UPGRADE_REQUIRED, "connect by WebSocket, version 13");
        let headers = response.headers_mut();
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        return response;
    };
    if upgrades.try_send(hyper::upgrade::on(&mut request)).is_err() {
        return refused(StatusCode::BAD_REQUEST, "a connection becomes a WebSocket once");
    }
    Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "websocket")
        .header(header::SEC_WEBSOCKET_ACCEPT, accept)
        .body(String::new())
        .expect("these headers are valid")
}

fn check<B>(
    request: &Request<B>,
    gateway: &Gateway,
    admission: Admission,
) -> Result<(), (StatusCode, &'static str)> {
    if !matches!(request.uri().path(), "/" | "/ws") {
        return Err((StatusCode::NOT_FOUND, "the gateway is at / and /ws"));
    }
    if request.method() != Method::GET {
        return Err((StatusCode::METHOD_NOT_ALLOWED, "a WebSocket begins with GET"));
    }
    let headers = request.headers();
    let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or(""));
    if gateway.origins.check(text(&header::ORIGIN), text(&header::HOST)).is_err() {
        return Err((StatusCode::FORBIDDEN, "pages of this origin may not connect"));
    }
    if admission == Admission::Full {
        return Err((StatusCode::SERVICE_UNAVAILABLE, "too many connections"));
    }
    Ok(())
}

fn refused(status: StatusCode, reason: &str) -> Response<String> {
    let mut response = Response::new(format!("{reason}\n"));
    *response.status_mut() = status;
    response
}

/// Whether the header `name` has `word` among its words.
fn lists(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|part| part.trim().eq_ignore_ascii_case(word))
}
