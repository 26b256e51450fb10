//! What clients were refused, and those that were closed because they did not read.

use prometheus::{IntCounter, IntCounterVec, Registry};

use super::{Metrics, PlaceLimit, Transport, counter, counters};
use crate::limits::LimitScope;

#[derive(Debug)]
pub(super) struct Refusals {
    rate_limited: IntCounterVec,
    failed_logins: IntCounter,
    origins: IntCounterVec,
    connections: IntCounterVec,
    counts: CountRefusals,
    slow_consumers: IntCounter,
}

/// A limit of the number of topics or groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountLimit {
    Topics,
    Groups,
}

/// Topics and groups that were refused because there were too many.
#[derive(Debug)]
pub(crate) struct CountRefusals(IntCounterVec);

impl CountLimit {
    const ALL: [CountLimit; 2] = [CountLimit::Topics, CountLimit::Groups];

    const fn name(self) -> &'static str {
        match self {
            CountLimit::Topics => "topics",
            CountLimit::Groups => "groups",
        }
    }
}

impl CountRefusals {
    fn new(registry: &Registry) -> Self {
        let help = "Requests that would have created a topic or a group above a limit.";
        Self(counters(registry, "prombus_limit_exceeded_total", help, &["limit"]))
    }

    pub(crate) fn count(&self, limit: CountLimit) {
        self.0.with_label_values(&[limit.name()]).inc();
    }
}

impl Default for CountRefusals {
    /// Returns counters that are not exposed.
    fn default() -> Self {
        Self::new(&Registry::new())
    }
}

impl Refusals {
    pub(super) fn new(registry: &Registry) -> Self {
        let refusals = Self {
            rate_limited: counters(
                registry,
                "prombus_events_rate_limited_total",
                "Events rejected by a rate limit.",
                &["scope"],
            ),
            failed_logins: counter(
                registry,
                "prombus_failed_logins_total",
                "Logins with a token that was rejected, or refused unseen after too many of them.",
            ),
            origins: counters(
                registry,
                "prombus_refused_origins_total",
                "Requests of web pages whose origin or host is not allowed.",
                &["transport"],
            ),
            connections: counters(
                registry,
                "prombus_connections_refused_total",
                "Connections above a limit.",
                &["limit"],
            ),
            counts: CountRefusals::new(registry),
            slow_consumers: counter(
                registry,
                "prombus_slow_consumers_total",
                "Connections closed with 4008 because they did not read what was sent to them.",
            ),
        };
        refusals.create_series();
        refusals
    }

    /// Creates every series, so that the first scrape shows zeros and the first refusal an increase.
    fn create_series(&self) {
        for scope in LimitScope::ALL {
            drop(self.rate_limited.with_label_values(&[scope.name()]));
        }
        for transport in Transport::ALL {
            drop(self.origins.with_label_values(&[transport.name()]));
        }
        for limit in PlaceLimit::ALL {
            drop(self.connections.with_label_values(&[limit.name()]));
        }
        for limit in CountLimit::ALL {
            drop(self.counts.0.with_label_values(&[limit.name()]));
        }
    }
}

impl Metrics {
    pub(crate) fn rate_limited(&self, scope: LimitScope, events: u64) {
        self.refusals.rate_limited.with_label_values(&[scope.name()]).inc_by(events);
    }

    /// Counts a login that was rejected.
    pub fn failed_login(&self) {
        self.refusals.failed_logins.inc();
    }

    /// Counts a request of a web page that may not connect.
    pub fn origin_refused(&self, transport: Transport) {
        self.refusals.origins.with_label_values(&[transport.name()]).inc();
    }

    /// Counts a connection that exceeds a limit.
    pub fn connection_refused(&self, limit: PlaceLimit) {
        self.refusals.connections.with_label_values(&[limit.name()]).inc();
    }

    /// Counts a connection that was closed because it did not read.
    pub fn slow_consumer(&self) {
        self.refusals.slow_consumers.inc();
    }

    /// Returns the counters of topics and groups that are refused.
    pub(crate) fn count_refusals(&self) -> CountRefusals {
        CountRefusals(self.refusals.counts.0.clone())
    }
}
