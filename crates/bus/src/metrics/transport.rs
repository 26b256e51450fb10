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

/// A limit of the number of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceLimit {
    /// Of all connections.
    Total,
    /// Of the connections from one address.
    PerAddress,
}

impl PlaceLimit {
    pub(super) const ALL: [PlaceLimit; 2] = [PlaceLimit::Total, PlaceLimit::PerAddress];

    pub(super) const fn name(self) -> &'static str {
        match self {
            PlaceLimit::Total => "total",
            PlaceLimit::PerAddress => "address",
        }
    }
}

/// A stage of an NDJSON request that holds memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NdjsonStage {
    /// Its lines arrive.
    Receiving,
    /// It waits for the tokens of its events, or is stored.
    Waiting,
}

impl NdjsonStage {
    pub(super) const ALL: [NdjsonStage; 2] = [NdjsonStage::Receiving, NdjsonStage::Waiting];

    pub(super) const fn name(self) -> &'static str {
        match self {
            NdjsonStage::Receiving => "receiving",
            NdjsonStage::Waiting => "waiting",
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
