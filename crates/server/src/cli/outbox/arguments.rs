//! The arguments of `prombus outbox`.

use std::env;
use std::ops::RangeInclusive;
use std::time::Duration;

use prombus_outbox::{ChangeDetection, OutboxLocation, WorkerOptions};
use prombus_proto::limits::MAX_FRAME_EVENTS;
use prombus_server::mongo_address::MongoAddress;

use crate::cli::server_arguments::GatewayArguments;
use crate::cli::sizes::bytes;
use crate::cli::times::milliseconds;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  prombus outbox --mongo 'mongodb://db1,db2,db3/shop?replicaSet=rs0'
  prombus outbox --mongo mongodb://db/shop --url wss://bus.example.com --keep-sent 7d
  prombus outbox --mongo mongodb://db/shop --once

A service writes its data and a document {_id, topic, payload, key?, headers?, status: \"pending\", ts} to
the collection in one transaction. Any number of workers publish these documents: each once, with _id as
the event id, ordered by ts within a topic and key. A worker marks a document as sent, or as an error with
the reason. On exit it prints {\"sent\":…,\"duplicates\":…,\"errors\":…,\"taken_over\":…}.")]
pub(crate) struct OutboxArguments {
    /// MongoDB connection string; prefer PROMBUS_MONGO in the environment, which other users cannot see
    #[arg(long, value_name = "URL", value_parser = mongo_address)]
    mongo: Option<MongoAddress>,
    /// Database name, if the connection string does not contain it
    #[arg(long, value_name = "NAME")]
    database: Option<String>,
    /// Outbox collection
    #[arg(long, value_name = "NAME", default_value = "outbox")]
    collection: String,
    /// Publish the pending documents and exit; fails if a document is rejected
    #[arg(long)]
    pub(super) once: bool,
    /// Documents to claim at a time: 1 to 1000
    #[arg(long, value_name = "COUNT", default_value_t = 200,
          value_parser = clap::value_parser!(u16).range(1..=MAX_FRAME_EVENTS as i64))]
    batch: u16,
    /// Lease on claimed documents, such as 30s or in milliseconds; renewed while the worker runs
    #[arg(long, alias = "lease", value_name = "TIME", default_value = "30000", value_parser = lease_ms)]
    lease_ms: u64,
    /// Interval to poll for expired leases and missed documents, such as 1s or in milliseconds
    #[arg(long, alias = "poll", value_name = "TIME", default_value = "1000", value_parser = poll_ms)]
    poll_ms: u64,
    /// Poll only; do not open a change stream
    #[arg(long)]
    no_change_stream: bool,
    /// Delete sent documents after this time, such as 7d, 12h, 30m or 90s; default: unchanged
    #[arg(long, value_name = "TIME", value_parser = keep_time)]
    keep_sent: Option<Duration>,
    /// Worker name, stored in lease_owner; default: host name and process id
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Maximum frame size the server accepts, its gateway.max_frame_bytes, such as 1MiB
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = frame_bytes)]
    max_frame_bytes: usize,
    #[command(flatten)]
    server: GatewayArguments,
}

impl OutboxArguments {
    pub(super) fn location(&self) -> Result<OutboxLocation, String> {
        let address = match (&self.mongo, env::var("PROMBUS_MONGO")) {
            (Some(address), _) => address.clone(),
            (None, Ok(text)) => {
                text.parse().map_err(|expected| format!("PROMBUS_MONGO must be {expected}"))?
            }
            (None, Err(_)) => {
                return Err("no outbox given: pass --mongo mongodb://… or set PROMBUS_MONGO".into());
            }
        };
        Ok(OutboxLocation {
            url: address.reveal().to_owned(),
            database: self.database.clone(),
            collection: self.collection.clone(),
        })
    }

    pub(super) fn options(&self) -> WorkerOptions {
        WorkerOptions {
            name: self.name.clone().unwrap_or_else(host_and_process),
            batch: self.batch.into(),
            lease: self.lease(),
            poll: Duration::from_millis(self.poll_ms),
            change_detection: match self.no_change_stream {
                true => ChangeDetection::Polling,
                false => ChangeDetection::ChangeStream,
            },
            keep_sent: self.keep_sent,
        }
    }

    /// The publishing client. It times out with the lease: other workers may claim the documents then.
    pub(super) fn client(&self) -> Result<prombus_client::Builder, String> {
        Ok(self.server.client()?.timeout(self.lease()).max_frame_bytes(self.max_frame_bytes))
    }

    const fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }
}

fn host_and_process() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() { "worker" } else { host.trim() };
    format!("{host}/{}", std::process::id())
}

fn mongo_address(text: &str) -> Result<MongoAddress, String> {
    text.parse().map_err(|expected| format!("expected {expected}"))
}

/// The largest TTL MongoDB accepts, in seconds.
const MAX_KEEP_SECONDS: u64 = i32::MAX as u64;

fn keep_time(text: &str) -> Result<Duration, String> {
    let expected =
        || "expected a duration such as 7d, 12h, 30m or 90s, from 1s to 68 years".to_owned();
    // A bare number has no unit that goes without saying.
    if text.trim().parse::<u64>().is_ok() {
        return Err(expected());
    }
    let time = Duration::from_millis(milliseconds(text).map_err(|_| expected())?);
    let is_valid = (1..=MAX_KEEP_SECONDS).contains(&time.as_secs());
    if is_valid { Ok(time) } else { Err(expected()) }
}

fn lease_ms(text: &str) -> Result<u64, String> {
    within(milliseconds(text)?, 1000..=86_400_000, "from 1s to 1d")
}

fn poll_ms(text: &str) -> Result<u64, String> {
    within(milliseconds(text)?, 10..=3_600_000, "from 10ms to 1h")
}

fn within(ms: u64, range: RangeInclusive<u64>, expected: &str) -> Result<u64, String> {
    if range.contains(&ms) { Ok(ms) } else { Err(format!("expected a duration {expected}")) }
}

fn frame_bytes(text: &str) -> Result<usize, String> {
    usize::try_from(bytes(text)?).map_err(|_| "too large".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_to_keep_needs_a_unit() {
        for (text, seconds) in
            [("90s", 90), ("30m", 1800), ("12h", 43_200), ("7d", 604_800), ("1.5h", 5400)]
        {
            assert_eq!(keep_time(text).unwrap().as_secs(), seconds);
        }
        for invalid in ["", "7", "d", "0s", "-1d", "7é", "99999d", "1y"] {
            assert!(keep_time(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn leases_and_polls_have_bounds() {
        assert_eq!((lease_ms("30s"), lease_ms("1000")), (Ok(30_000), Ok(1000)));
        assert_eq!(poll_ms("1m"), Ok(60_000));
        assert!(lease_ms("999").is_err() && lease_ms("2d").is_err() && poll_ms("5ms").is_err());
    }
}
