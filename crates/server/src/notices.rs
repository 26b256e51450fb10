//! Log lines for operators about web pages that may not connect, and about clients that do not read.

use std::net::IpAddr;
use std::time::Duration;

use prombus_bus::{Network, PacedLine, PacedLog, Transport};
use prombus_proto::{Group, Topic};

use crate::auth::{Caller, Identity};

/// Networks and clients with lines of their own, per second.
const MAX_KEYS: usize = 100;
/// A web page may claim any origin.
const MAX_ORIGIN_CHARS: usize = 200;

/// Writes the lines, each at most once a second, with a count.
pub(crate) struct Notices {
    refused_origins: PacedLog<Network, RefusedOrigin>,
    slow_consumers: PacedLog<(Identity, Network), SlowConsumer>,
}

/// A request that was refused because of the web page that it claims to come from.
struct RefusedOrigin {
    caller: Caller,
    origin: Option<String>,
    host: Option<String>,
}

/// A connection that was closed because its client did not read.
pub(crate) struct SlowConsumer {
    pub(crate) address: IpAddr,
    /// How many subscriptions it had, and one of them.
    pub(crate) subscriptions: usize,
    pub(crate) subscription: Option<(Topic, Group)>,
    /// Bytes that it was sent and did not read.
    pub(crate) unread_bytes: usize,
    /// For how long it read nothing.
    pub(crate) waited: Duration,
}

impl Default for Notices {
    fn default() -> Self {
        Self {
            refused_origins: PacedLog::new(MAX_KEYS, write_refused_origin),
            slow_consumers: PacedLog::new(MAX_KEYS, write_slow_consumer),
        }
    }
}

impl Notices {
    pub(crate) fn refused_origin(
        &self,
        address: IpAddr,
        transport: Transport,
        (origin, host): (Option<&str>, Option<&str>),
    ) {
        let caller = Caller { address, transport };
        let short = |text: &str| text.chars().take(MAX_ORIGIN_CHARS).collect();
        self.refused_origins.record(Network::of(address), 1, || RefusedOrigin {
            caller,
            origin: origin.map(short),
            host: host.map(short),
        });
    }

    pub(crate) fn slow_consumer(&self, identity: Identity, closed: SlowConsumer) {
        let key = (identity, Network::of(closed.address));
        self.slow_consumers.record(key, 1, || closed);
    }
}

fn write_refused_origin(line: PacedLine<Network, RefusedOrigin>) {
    match line {
        PacedLine::Repeated { details: RefusedOrigin { caller, origin, host }, count, .. } => {
            tracing::warn!(
                address = %caller.address,
                transport = caller.transport.name(),
                origin,
                host,
                count,
                "refused a web page of another origin; if the page is yours, list its origin in \
                 auth.allowed_origins"
            );
        }
        PacedLine::Others { count } => tracing::warn!(
            count,
            "refused web pages at many other addresses; prombus_refused_origins_total counts them"
        ),
    }
}

fn write_slow_consumer(line: PacedLine<(Identity, Network), SlowConsumer>) {
    match line {
        PacedLine::Repeated { key: (identity, _), details: closed, count } => {
            let (topic, group) = closed.subscription.unzip();
            tracing::warn!(
                principal = identity.name(),
                kind = identity.kind(),
                address = %closed.address,
                topic = topic.as_ref().map(Topic::as_str),
                group = group.as_ref().map(Group::as_str),
                subscriptions = closed.subscriptions,
                unread_bytes = closed.unread_bytes,
                waited_ms = u64::try_from(closed.waited.as_millis()).unwrap_or(u64::MAX),
                count,
                "closed a slow consumer (4008): it read nothing of what it was sent, and its events go to \
                 other members; make it read while it works, or lower its maxInFlight"
            );
        }
        PacedLine::Others { count } => tracing::warn!(
            count,
            "closed slow consumers of many other clients; prombus_slow_consumers_total counts them"
        ),
    }
}
