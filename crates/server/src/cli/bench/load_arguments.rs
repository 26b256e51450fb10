//! The load that `bench publish` and `bench subscribe` generate.

use prombus_bench::Load;
use prombus_proto::Topic;

use crate::cli::sizes::bytes;

#[derive(clap::Args)]
pub(super) struct LoadArguments {
    /// Number of events
    #[arg(long, value_name = "COUNT", default_value_t = 100_000)]
    n: u64,
    /// Event size, such as 1KiB or in bytes: the complete JSON a consumer receives
    #[arg(long, value_name = "SIZE", default_value = "236", value_parser = event_bytes)]
    size: usize,
    /// Events per frame; a frame is confirmed as a whole
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    batch: u64,
    /// Maximum unconfirmed or unacknowledged events per connection
    #[arg(long, value_name = "COUNT", default_value_t = 1000)]
    window: u64,
    /// Number of publishing connections; bench subscribe opens as many consuming ones
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    connections: usize,
    /// Number of topics; frames go to each in turn
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    topics: usize,
    /// Topic, or name prefix if there are several
    #[arg(long, value_name = "TOPIC", default_value = "bench.topic")]
    topic: Topic,
    /// Send at this fixed rate, all connections together; default: as fast as possible
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<f64>,
}

/// Parses the size of an event.
pub(super) fn event_bytes(text: &str) -> Result<usize, String> {
    usize::try_from(bytes(text)?).map_err(|_| "too large".to_owned())
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
