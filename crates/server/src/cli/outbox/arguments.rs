//! The arguments of `prombus outbox`.

use std::env;
use std::time::Duration;

use prombus_outbox::{ChangeDetection, OutboxLocation, WorkerOptions};
use prombus_proto::limits::MAX_FRAME_EVENTS;
use prombus_server::mongo_address::MongoAddress;

use crate::cli::server_arguments::GatewayArguments;

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
    /// Lease on claimed documents, in milliseconds, renewed while the worker runs
    #[arg(long, value_name = "MS", default_value_t = 30_000,
          value_parser = clap::value_parser!(u64).range(1000..=86_400_000))]
    lease_ms: u64,
    /// Interval to poll for expired leases and missed documents, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 1000,
          value_parser = clap::value_parser!(u64).range(10..=3_600_000))]
    poll_ms: u64,
    /// Poll only; do not open a change stream
    #[arg(long)]
    no_change_stream: bool,
    /// Delete sent documents after this time, such as 7d, 12h, 30m or 90s; default: unchanged
    #[arg(long, value_name = "TIME", value_parser = duration)]
    keep_sent: Option<Duration>,
    /// Worker name, stored in lease_owner; default: host name and process id
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Maximum frame size the server accepts, its gateway.max_frame_bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20)]
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

fn duration(text: &str) -> Result<Duration, String> {
    let invalid = || "expected a duration such as 7d, 12h, 30m or 90s, at least 1s".to_owned();
    let unit = text.chars().last().ok_or_else(invalid)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return Err(invalid()),
    };
    let count: u32 = text[..text.len() - unit.len_utf8()].parse().map_err(|_| invalid())?;
    let total = u64::from(count) * seconds;
    // The largest TTL MongoDB accepts.
    if total == 0 || i32::try_from(total).is_err() {
        Err(invalid())
    } else {
        Ok(Duration::from_secs(total))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit() {
        for (text, seconds) in [("90s", 90), ("30m", 1800), ("12h", 43_200), ("7d", 604_800)] {
            assert_eq!(duration(text).unwrap().as_secs(), seconds);
        }
        for invalid in ["", "7", "d", "0s", "-1d", "1.5h", "7w", "7é", "99999d"] {
            assert!(duration(invalid).is_err(), "{invalid}");
        }
    }
}
