//! The timeouts of one session.

use std::time::Duration;

use tokio::time::Instant;

use super::close_code::CloseCode;
use crate::config;

/// When the session has to act next, or gives up on its peer.
pub(super) struct Deadlines {
    /// The next ping.
    ping_at: Instant,
    /// The pong to an earlier ping.
    pong_by: Option<Instant>,
    /// The first AUTH, while it is missing.
    auth_by: Option<Instant>,
    /// The next write that makes progress, while the peer accepts nothing.
    drain_by: Option<Instant>,
    /// The expiry of the client's rights.
    rights_end: Option<Instant>,
    /// The end of the session, once the server shuts down.
    close_at: Option<Instant>,
}

impl Deadlines {
    pub(super) fn new(settings: &config::GatewayConfig, is_authenticated: bool) -> Self {
        let now = Instant::now();
        Self {
            ping_at: now + settings.ping_interval,
            pong_by: None,
            auth_by: (!is_authenticated).then(|| now + settings.auth_timeout),
            drain_by: None,
            rights_end: None,
            close_at: None,
        }
    }

    /// Returns why the session has to be closed now, if it has to. A missing pong is not a reason yet:
    /// it may be in the socket ([`Deadlines::pong_is_overdue`]).
    pub(super) fn expired(&self, now: Instant) -> Option<CloseCode> {
        let is_over = |by: Option<Instant>| by.is_some_and(|by| now >= by);
        if is_over(self.drain_by) {
            return Some(CloseCode::SlowConsumer);
        }
        if is_over(self.auth_by) {
            return Some(CloseCode::NotAuthenticated);
        }
        is_over(self.close_at).then_some(CloseCode::GoingAway)
    }

    /// Returns when to wake up at the latest. No pong is expected while the socket is not read.
    pub(super) fn next(&self, may_read: bool) -> Instant {
        let pong_by = self.pong_by.filter(|_| may_read);
        let times = [pong_by, self.drain_by, self.auth_by, self.rights_end, self.close_at];
        times.into_iter().flatten().fold(self.ping_at, Instant::min)
    }

    /// Returns whether a ping is due, and schedules the next one and its pong.
    pub(super) fn take_ping(&mut self, now: Instant, settings: &config::GatewayConfig) -> bool {
        let is_due = now >= self.ping_at;
        if is_due {
            self.ping_at = now + settings.ping_interval;
            self.pong_by.get_or_insert(now + settings.pong_timeout);
        }
        is_due
    }

    pub(super) fn pong_received(&mut self) {
        self.pong_by = None;
    }

    pub(super) fn pong_is_overdue(&self) -> bool {
        self.pong_by.is_some_and(|by| Instant::now() >= by)
    }

    /// Restarts the wait for a pong: we could not have read it.
    pub(super) fn restart_pong(&mut self, timeout: Duration) {
        self.pong_by = self.pong_by.map(|_| Instant::now() + timeout);
    }

    /// Extends the wait for a pong by the time in which we did not read.
    pub(super) fn extend_pong(&mut self, time: Duration) {
        self.pong_by = self.pong_by.map(|by| by + time);
    }

    /// The peer accepted data, or none is waiting.
    pub(super) fn drained(&mut self) {
        self.drain_by = None;
    }

    /// The peer accepts no data.
    pub(super) fn stalled(&mut self, timeout: Duration) {
        self.drain_by.get_or_insert_with(|| Instant::now() + timeout);
    }

    pub(super) fn authenticated(&mut self) {
        self.auth_by = None;
    }

    /// The client has lost its rights, and as much time as a new one to present a token.
    pub(super) fn not_authenticated(&mut self, timeout: Duration) {
        self.auth_by.get_or_insert_with(|| Instant::now() + timeout);
    }

    /// `rights_last` is `None` if the rights do not expire.
    pub(super) fn set_rights_end(&mut self, rights_last: Option<Duration>) {
        self.rights_end = rights_last.map(|time| Instant::now() + time);
    }

    /// Returns `true` once when the client's rights have expired.
    pub(super) fn take_rights_end(&mut self, now: Instant) -> bool {
        self.rights_end.take_if(|end| now >= *end).is_some()
    }

    pub(super) fn close_at(&mut self, at: Instant) {
        self.close_at = Some(at);
    }

    pub(super) const fn is_closing(&self) -> bool {
        self.close_at.is_some()
    }
}
