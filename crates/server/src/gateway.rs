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

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prombus_bus::{Bus, Principal, Refusal, Transport};
use prombus_proto::{Clock, ErrorCode};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use crate::accept::Arrival;
use crate::access::Access;
use crate::auth::{Caller, Credential, Grant, Login, Logins, Tickets, tickets};
use crate::config;
use crate::notices::Notices;
use crate::phase::Phase;
use crate::swap::Swap;

use session::Session;

/// State shared by all connections.
pub struct Gateway {
    pub bus: Arc<Bus>,
    /// Replaced by a reload.
    pub(crate) access: Swap<Access>,
    pub logins: Logins,
    pub tickets: Tickets,
    pub(crate) notices: Notices,
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

    /// Records a request that was refused because of its `Origin` or its `Host`.
    pub(crate) fn origin_refused(
        &self,
        address: IpAddr,
        transport: Transport,
        origin_and_host: (Option<&str>, Option<&str>),
    ) {
        self.bus.metrics().origin_refused(transport);
        self.notices.refused_origin(address, transport, origin_and_host);
    }

    /// Returns what a token allows.
    pub(crate) fn log_in(&self, login: Login<'_>) -> Result<Grant, Refusal> {
        let (access, now) = (self.access(), self.clock.now());
        self.logins.log_in(&access.authenticator, login, self.bus.metrics(), now)
    }

    /// Issues a ticket for what `principal` presented, and says how long it can be used. On an open server, which
    /// accepts any ticket, nothing is presented.
    pub(crate) fn issue_ticket(
        &self,
        (credential, principal): (Option<Credential>, Principal),
    ) -> Result<(String, Duration), Refusal> {
        let ticket = match credential {
            Some(credential) => self.tickets.issue(credential, principal, now())?,
            None => tickets::random_ticket()?,
        };
        Ok((ticket, tickets::LIFETIME))
    }

    /// Returns what was presented for a ticket, and what that allows now. A ticket can be redeemed once.
    ///
    /// # Errors
    ///
    /// `bad_token`, also if the token that it was issued for is no longer valid.
    pub(crate) fn redeem(
        &self,
        ticket: &str,
        caller: Caller,
    ) -> Result<(Option<Credential>, Grant), Refusal> {
        let access = self.access();
        if access.authenticator.is_open() {
            return Ok((None, Grant::unrestricted()));
        }
        let credential = self.tickets.redeem(ticket, now());
        let grant = credential.as_ref().and_then(|credential| {
            access.authenticator.check_again(Some(credential), self.clock.now())
        });
        let Some(grant) = grant else {
            self.bus.metrics().failed_login();
            self.logins.audit.failed_login(caller, &tickets::INVALID, now());
            return Err(Refusal::new(ErrorCode::BadToken, tickets::INVALID));
        };
        self.logins.audit.login(&grant.identity, caller, now());
        Ok((credential, grant))
    }
}

/// The clock that tests can stop.
fn now() -> std::time::Instant {
    tokio::time::Instant::now().into_std()
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
