//! The systems, each with its server and its client.

pub(crate) mod mongodb;
pub(crate) mod nats;
pub(crate) mod prombus;
pub(crate) mod redis;

/// The one topic, stream or key that events go to. Every measurement has a server of its own.
pub(crate) const TOPIC: &str = "bench.events";
/// The one group that consumes.
pub(crate) const GROUP: &str = "bench";
