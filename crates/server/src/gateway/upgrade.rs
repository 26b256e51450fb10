//! The upgrade of an HTTP request to a WebSocket.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, Uri, Version};
use prombus_bus::Transport;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::Gateway;
use crate::accept::{
    Admission, HANDSHAKE_TIME, NewConnection, Port, RequestHandler, Upgrade, refuse_host,
};
use crate::auth::{Caller, tickets};

/// Why a request is not upgraded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoUpgrade {
    /// It is not a valid upgrade request.
    NotRequested,
    /// An earlier request already upgrades the connection.
    AlreadyUpgrading,
    /// Its URL has a ticket that is not valid.
    BadTicket,
}

impl Port for Gateway {
    fn handler(self: Arc<Self>, connection: NewConnection) -> RequestHandler {
        Box::new(move |request| {
            let response = self.respond(request, &connection);
            Box::pin(std::future::ready(response))
        })
    }

    fn anonymous_time(&self) -> Option<Duration> {
        Some(match self.access().authenticator.is_open() {
            true => HANDSHAKE_TIME,
            false => HANDSHAKE_TIME.min(self.settings.auth_timeout),
        })
    }
}

impl Gateway {
    fn respond<B>(&self, request: Request<B>, connection: &NewConnection) -> Response<Body> {
        if let Err((status, reason)) = self.check(&request, connection) {
            return refused(status, reason);
        }
        self.upgrade(request, connection).unwrap_or_else(|no| no.response(refused))
    }

    fn check<B>(
        &self,
        request: &Request<B>,
        connection: &NewConnection,
    ) -> Result<(), (StatusCode, &'static str)> {
        if let Some(reason) = refuse_host(request) {
            return Err((StatusCode::BAD_REQUEST, reason));
        }
        if !matches!(request.uri().path(), "/" | "/ws") {
            return Err((StatusCode::NOT_FOUND, "the gateway is at / and /ws"));
        }
        if request.method() != Method::GET {
            return Err((StatusCode::METHOD_NOT_ALLOWED, "a WebSocket handshake is a GET request"));
        }
        let headers = request.headers();
        let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or(""));
        let (origin, host) = (text(&header::ORIGIN), text(&header::HOST));
        if self.access().origins.check(origin, host).is_err() {
            self.origin_refused(connection.address, Transport::Ws, (origin, host));
            return Err((StatusCode::FORBIDDEN, "this origin is not allowed"));
        }
        match connection.admission {
            Admission::Everything => Ok(()),
            Admission::HealthCheck(limit) => {
                Err((StatusCode::SERVICE_UNAVAILABLE, Admission::refusal(limit)))
            }
        }
    }

    /// Accepts an upgrade request of `connection`, which becomes a WebSocket.
    pub(crate) fn upgrade<B>(
        &self,
        mut request: Request<B>,
        connection: &NewConnection,
    ) -> Result<Response<Body>, NoUpgrade> {
        let headers = request.headers();
        let asks = request.method() == Method::GET
            && request.version() == Version::HTTP_11
            && lists(headers, &header::CONNECTION, "upgrade")
            && lists(headers, &header::UPGRADE, "websocket")
            && lists(headers, &header::SEC_WEBSOCKET_VERSION, "13");
        let key = headers.get(header::SEC_WEBSOCKET_KEY).filter(|_| asks);
        let accept = derive_accept_key(key.ok_or(NoUpgrade::NotRequested)?.as_bytes());
        // Last: only a connection uses up a ticket.
        let presented = match ticket_in(request.uri()) {
            Some(ticket) => {
                let caller = Caller { address: connection.address, transport: Transport::Ws };
                self.redeem(ticket, caller).map_err(|_| NoUpgrade::BadTicket)?.0
            }
            None => None,
        };
        let upgrade = Upgrade { stream: hyper::upgrade::on(&mut request), presented };
        connection.upgrades.try_send(upgrade).map_err(|_| NoUpgrade::AlreadyUpgrading)?;
        Ok(Response::builder()
            .status(StatusCode::SWITCHING_PROTOCOLS)
            .header(header::CONNECTION, "Upgrade")
            .header(header::UPGRADE, "websocket")
            .header(header::SEC_WEBSOCKET_ACCEPT, accept)
            .body(Body::empty())
            .expect("these headers are valid"))
    }
}

/// Returns the ticket in the query, whose characters need no encoding.
pub(crate) fn ticket_in(uri: &Uri) -> Option<&str> {
    uri.query()?.split('&').find_map(|parameter| parameter.strip_prefix("ticket="))
}

impl NoUpgrade {
    /// Returns the response, with a body by `refused`.
    pub(crate) fn response(
        self,
        refused: impl FnOnce(StatusCode, &'static str) -> Response<Body>,
    ) -> Response<Body> {
        match self {
            Self::NotRequested => {
                let status = StatusCode::UPGRADE_REQUIRED;
                let mut response = refused(status, "connect with WebSocket version 13");
                let headers = response.headers_mut();
                headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
                headers.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
                response
            }
            Self::BadTicket => refused(StatusCode::UNAUTHORIZED, tickets::INVALID),
            Self::AlreadyUpgrading => refused(
                StatusCode::BAD_REQUEST,
                "the connection is already being upgraded to a WebSocket",
            ),
        }
    }
}

fn refused(status: StatusCode, reason: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(format!("{reason}\n")));
    *response.status_mut() = status;
    response
}

/// Returns whether the comma-separated header `name` contains `word`.
fn lists(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|part| part.trim().eq_ignore_ascii_case(word))
}
