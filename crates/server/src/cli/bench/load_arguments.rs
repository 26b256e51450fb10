//! What work is done.

use prombus_bench::Load;
use prombus_proto::Topic;

/// What `publish` and `subscribe` do.
#[derive(clap::Args)]
pub(super) struct LoadArguments {
    /// How many events
    #[arg(long, value_name = "COUNT", default_value_t = 100_000)]
    n: u64,
    /// How many bytes an event has: its whole JSON as readers get it, from { to }, with a seq of
    /// seven digits
    #[arg(long, value_name = "BYTES", default_value_t = 236)]
    size: usize,
    /// How many events go in one frame, which is answered as one
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    batch: u64,
    /// How many events of a connection may be published and not answered; and delivered and not
    /// acknowledged
    #[arg(long, value_name = "COUNT", default_value_t = 1000)]
    window: u64,
    /// How many connections publish, and how many others consume
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    connections: usize,
    /// How many topics the frames go to in turn
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    topics: usize,
    /// The topic, or how the names of all topics begin
    #[arg(long, value_name = "TOPIC", default_value = "bench.topic")]
    topic: Topic,
    /// Send so many events a second, all connections together, whatever becomes of those before:
    /// latencies count from when an event was meant to be sent. Without it, flat out
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<f64>,
}

impl LoadArguments {
    pub(super) fn load(&self) -> Load {
        Load {
            events: self.n,
            size: self.size,
            batch: self.batch,
            window: self.window,
            connections: self.connections,
            topics: self.topics,
            topic: self.topic.clone(),
            rate: self.rate,
            ..Load::default()
        }
    }
}
