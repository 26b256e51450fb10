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
    /// The end of a large message that is arriving.
    message_by: Option<Instant>,
    /// When a client that owes tokens has paid them: it is not read before.
    read_at: Option<Instant>,
    /// The next write that makes progress, while the peer accepts nothing.
    drain_by: Option<Instant>,
    /// The expiry of the client's rights.
    rights_end: Option<Instant>,
    /// The end of the time in which a client without rights has to authenticate again.
    renew_by: Option<Instant>,
    /// The end of the session, once the server shuts down.
    close_at: Option<Instant>,
}

impl Deadlines {
    /// The time to authenticate counts from `accepted_at`, so that requests before the upgrade do not extend it.
    pub(super) fn new(
        settings: &config::GatewayConfig,
        accepted_at: Instant,
        is_authenticated: bool,
    ) -> Self {
        let now = Instant::now();
        Self {
            ping_at: now + settings.ping_interval,
            pong_by: None,
            auth_by: (!is_authenticated).then(|| accepted_at + settings.auth_timeout),
            message_by: None,
            read_at: None,
            drain_by: None,
            rights_end: None,
            renew_by: None,
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
        if is_over(self.renew_by) {
            return Some(CloseCode::TokenExpired);
        }
        is_over(self.close_at).then_some(CloseCode::GoingAway)
    }

    /// Stops reading until `at`. `None` lets it go on.
    pub(super) fn set_read_at(&mut self, at: Option<Instant>) {
        self.read_at = at;
    }

    /// Returns `true` if nothing is read before [`Deadlines::set_read_at`].
    pub(super) const fn reads_later(&self) -> bool {
        self.read_at.is_some()
    }

    /// Returns when to wake up at the latest. No pong is expected while the socket is not read.
    pub(super) fn next(&self, may_read: bool) -> Instant {
        let pong_by = self.pong_by.filter(|_| may_read);
        let message_by = self.message_by.filter(|_| may_read);
        let times = [
            pong_by,
            message_by,
            self.read_at,
            self.drain_by,
            self.auth_by,
            self.rights_end,
            self.renew_by,
            self.close_at,
        ];
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

    /// `by` is `None` unless a large message is arriving.
    pub(super) const fn set_message_by(&mut self, by: Option<Instant>) {
        self.message_by = by;
    }

    pub(super) fn message_is_overdue(&self) -> bool {
        self.message_by.is_some_and(|by| Instant::now() >= by)
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

    /// A reload has ended the client's rights. It may stay as long as after their expiry, unless that has
    /// come already. A client that never had any has no more time than before.
    pub(super) fn lost_rights(&mut self, grace: Duration) {
        self.rights_end = None;
        if self.auth_by.is_none() {
            let by = Instant::now() + grace;
            self.renew_by = Some(self.renew_by.map_or(by, |earlier| earlier.min(by)));
        }
    }

    /// Takes how long the client's rights last and how long it may stay, `None` if they do not expire.
    pub(super) fn set_rights_end(&mut self, rights_last: Option<(Duration, Duration)>) {
        let now = Instant::now();
        self.rights_end = rights_last.map(|(rights, _)| now + rights);
        self.renew_by = rights_last.map(|(_, stay)| now + stay);
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
