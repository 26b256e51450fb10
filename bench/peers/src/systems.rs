//! The clients of the systems.

pub(crate) mod mongodb;
pub(crate) mod nats;
pub(crate) mod prombus;
pub(crate) mod redis;

/// The topic, stream or key of all events. Every measurement has a server of its own.
pub(crate) const TOPIC: &str = "bench.events";
/// The only consumer group.
pub(crate) const GROUP: &str = "bench";
