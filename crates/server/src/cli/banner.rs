//! What the server prints when it is ready and when it has stopped: lines of text, or log lines where the log is
//! JSON. Both on stderr, whatever `log.level` is.

use std::error::Error;
use std::io::{self, Write};

use prombus_server::config::{BucketConfig, Config, EngineConfig, LimitsConfig};
use prombus_server::logging::{LIFECYCLE, LineFormat};
use prombus_server::server::Server;

use super::human_bytes::human_bytes;

/// Prints what the store contains, the limits in force, and where the server listens.
pub(super) async fn ready(
    server: &Server,
    config: &Config,
    format: LineFormat,
) -> Result<(), Box<dyn Error>> {
    let engine = server.engine();
    let topics = engine.topics().await?;
    let (mut events, mut bytes) = (0, 0);
    for topic in &topics {
        let bounds = engine.bounds(topic).await?;
        events += bounds.count();
        bytes += bounds.bytes;
    }
    for incident in engine.health().incidents {
        tracing::warn!("{incident}");
    }
    let store = match &config.server.engine {
        EngineConfig::Disk => format!("the store in {}", config.server.data.display()),
        EngineConfig::Memory => "an in-memory store, lost on exit".to_owned(),
        EngineConfig::Mongo(address) => format!("the database at {address}"),
    };
    let version = env!("CARGO_PKG_VERSION");
    let limits = describe_limits(&config.limits);
    let (topics, ws, http) = (topics.len(), server.ws_url(), server.http_url());
    match format {
        LineFormat::Json => {
            tracing::info!(
                target: LIFECYCLE,
                version, %store, topics, events, bytes, %limits, %ws, %http,
                "ready"
            );
        }
        LineFormat::Text => print(&format!(
            "prombus {version} opened {store}\n\
             {topics} topics, {events} events, {bytes} bytes\n\
             limits: {limits}\n\
             WebSocket gateway: {ws}\n\
             HTTP: {http}\n\
             ready; press ctrl-c to stop",
        )),
    }
    Ok(())
}

/// Prints that the server has stopped in order.
pub(super) fn stopped(format: LineFormat) {
    let stopped = "stopped; everything is stored";
    match format {
        LineFormat::Json => tracing::info!(target: LIFECYCLE, "{stopped}"),
        LineFormat::Text => print(stopped),
    }
}

fn describe_limits(limits: &LimitsConfig) -> String {
    if !limits.enabled {
        return "none".to_owned();
    }
    let rate = |bucket: BucketConfig| match (bucket.capacity, bucket.refill_per_sec) {
        (capacity, rate) if capacity == rate => format!("{rate}/s"),
        (capacity, rate) => format!("{rate}/s (burst {capacity})"),
    };
    format!(
        "{} and {}/s per connection, {} per client, {} per topic; {} topics, {} groups per topic",
        rate(limits.connection),
        human_bytes(limits.connection_bytes_per_sec as f64),
        rate(limits.principal),
        rate(limits.topic),
        limits.max_topics,
        limits.max_groups_per_topic,
    )
}

/// Prints to stderr. The server keeps running if stderr is closed.
fn print(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
