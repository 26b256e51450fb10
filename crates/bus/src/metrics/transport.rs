//! Connections and their bytes.

use prometheus::{IntCounter, IntGauge};

/// How a client is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    Ws,
    Http,
}

impl Transport {
    pub(super) const ALL: [Transport; 2] = [Transport::Ws, Transport::Http];

    /// Returns the label of its series.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Transport::Ws => "ws",
            Transport::Http => "http",
        }
    }
}

/// A guard that counts a connection as open until it is dropped.
#[derive(Debug)]
pub struct OpenConnection(IntGauge);

impl OpenConnection {
    pub(super) fn new(open: IntGauge) -> Self {
        open.inc();
        Self(open)
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// The byte counters of a transport. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Traffic {
    received: IntCounter,
    sent: IntCounter,
}

impl Traffic {
    pub(super) const fn new(received: IntCounter, sent: IntCounter) -> Self {
        Self { received, sent }
    }

    pub fn received(&self, bytes: usize) {
        self.received.inc_by(bytes as u64);
    }

    pub fn sent(&self, bytes: usize) {
        self.sent.inc_by(bytes as u64);
    }
}
