//! How a request becomes a WebSocket: path, origin and headers are checked before.

use std::sync::Arc;

use axum::body::Body;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, Response, StatusCode, Version};
use tokio::sync::mpsc::Sender;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::Gateway;
use crate::listening::{Admission, Answering, Arrival, Port};

/// Why a request does not become a WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoUpgrade {
    /// It does not ask for one, or not in a way that we understand.
    NotAsked,
    /// Its connection is to become one already.
    Already,
}

impl Port for Gateway {
    fn connected(self: Arc<Self>, arrival: Arrival) -> Answering {
        Box::new(move |request| {
            let response = self.answer(request, &arrival);
            Box::pin(std::future::ready(response))
        })
    }
}

impl Gateway {
    fn answer<B>(&self, request: Request<B>, arrival: &Arrival) -> Response<Body> {
        if let Err((status, reason)) = self.check(&request, arrival.admission) {
            return refused(status, reason);
        }
        upgrade(request, &arrival.upgrades).unwrap_or_else(|no| no.answer(refused))
    }

    fn check<B>(
        &self,
        request: &Request<B>,
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
        if self.origins.check(text(&header::ORIGIN), text(&header::HOST)).is_err() {
            return Err((StatusCode::FORBIDDEN, "pages of this origin may not connect"));
        }
        if admission == Admission::Full {
            return Err((StatusCode::SERVICE_UNAVAILABLE, "too many connections"));
        }
        Ok(())
    }
}

/// Answers a request that becomes a WebSocket, and hands it to `upgrades`.
pub(crate) fn upgrade<B>(
    mut request: Request<B>,
    upgrades: &Sender<OnUpgrade>,
) -> Result<Response<Body>, NoUpgrade> {
    let headers = request.headers();
    let asks = request.method() == Method::GET
        && request.version() == Version::HTTP_11
        && lists(headers, &header::CONNECTION, "upgrade")
        && lists(headers, &header::UPGRADE, "websocket")
        && lists(headers, &header::SEC_WEBSOCKET_VERSION, "13");
    let key = headers.get(header::SEC_WEBSOCKET_KEY).filter(|_| asks).ok_or(NoUpgrade::NotAsked)?;
    let accept = derive_accept_key(key.as_bytes());
    upgrades.try_send(hyper::upgrade::on(&mut request)).map_err(|_| NoUpgrade::Already)?;
    Ok(Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "websocket")
        .header(header::SEC_WEBSOCKET_ACCEPT, accept)
        .body(Body::empty())
        .expect("these headers are valid"))
}

impl NoUpgrade {
    /// The answer that says so, in the form that `refused` gives it.
    pub(crate) fn answer(
        self,
        refused: impl FnOnce(StatusCode, &'static str) -> Response<Body>,
    ) -> Response<Body> {
        match self {
            Self::NotAsked => {
                let status = StatusCode::UPGRADE_REQUIRED;
                let mut response = refused(status, "connect by WebSocket, version 13");
                let headers = response.headers_mut();
                headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
                headers.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
                response
            }
            Self::Already => {
                refused(StatusCode::BAD_REQUEST, "a connection becomes a WebSocket once")
            }
        }
    }
}

fn refused(status: StatusCode, reason: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(format!("{reason}\n")));
    *response.status_mut() = status;
    response
}

/// Whether the header `name` has `word` among its words.
fn lists(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|part| part.trim().eq_ignore_ascii_case(word))
}
