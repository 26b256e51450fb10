//! What `outbox` takes.

use std::env;
use std::time::Duration;

use prombus_outbox::{Place, Wake, WorkerOptions};
use prombus_proto::limits::MAX_FRAME_EVENTS;
use prombus_server::mongo_address::MongoAddress;

use crate::cli::server_arguments::GatewayArguments;

/// What `outbox` takes.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  prombus outbox --mongo 'mongodb://db1,db2,db3/shop?replicaSet=rs0'
  prombus outbox --mongo mongodb://db/shop --url wss://bus.example.com --keep-sent 7d
  prombus outbox --mongo mongodb://db/shop --once

A service writes its data and a document {_id, topic, payload, key?, headers?, status: \"pending\", ts}
into the collection in one transaction. Any number of workers publish such documents, each once, with
_id as the event's id, and in the order of ts within a topic and key; they mark them as sent, or as an
error with its reason. At its end it prints {\"sent\":…,\"duplicates\":…,\"errors\":…,\"taken_over\":…}.")]
pub(crate) struct OutboxArguments {
    /// The database of the service, a replica set; others on this machine cannot see a password in it
    /// when it comes from PROMBUS_MONGO in the environment instead
    #[arg(long, value_name = "URL")]
    mongo: Option<MongoAddress>,
    /// Its name, where the address does not say it
    #[arg(long, value_name = "NAME")]
    database: Option<String>,
    /// The collection
    #[arg(long, value_name = "NAME", default_value = "outbox")]
    collection: String,
    /// Publish what is there, and end; fails if a document is refused
    #[arg(long)]
    pub(super) once: bool,
    /// How many documents to claim at a time: 1 to 1000
    #[arg(long, value_name = "COUNT", default_value_t = 200,
          value_parser = clap::value_parser!(u16).range(1..=MAX_FRAME_EVENTS as i64))]
    batch: u16,
    /// How long they are this worker's own; it says again in time that it is there, so this is how
    /// long others wait when it dies
    #[arg(long, value_name = "MS", default_value_t = 30_000,
          value_parser = clap::value_parser!(u64).range(1000..=86_400_000))]
    lease_ms: u64,
    /// How often to look for leases that ended, and for documents that no change stream told of
    #[arg(long, value_name = "MS", default_value_t = 1000,
          value_parser = clap::value_parser!(u64).range(10..=3_600_000))]
    poll_ms: u64,
    /// Use no change stream, only --poll-ms
    #[arg(long)]
    no_change_stream: bool,
    /// Let documents go by themselves so long after they were sent, such as 7d, 12h, 30m or 90s;
    /// otherwise as it was said before, or for ever
    #[arg(long, value_name = "TIME", value_parser = time)]
    keep_sent: Option<Duration>,
    /// Who this worker is, in lease_owner; otherwise its host and process
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The largest frame that the server takes, its gateway.max_frame_bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20)]
    max_frame_bytes: usize,
    #[command(flatten)]
    server: GatewayArguments,
}

impl OutboxArguments {
    /// Where the outbox is.
    pub(super) fn place(&self) -> Result<Place, String> {
        let address = match (&self.mongo, env::var("PROMBUS_MONGO")) {
            (Some(address), _) => address.clone(),
            (None, Ok(text)) => {
                text.parse().map_err(|wrong| format!("PROMBUS_MONGO has to be {wrong}"))?
            }
            (None, Err(_)) => {
                return Err(
                    "where is the outbox? Say it by --mongo mongodb://… or PROMBUS_MONGO".into()
                );
            }
        };
        Ok(Place {
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
            wake: if self.no_change_stream { Wake::Polling } else { Wake::ChangeStream },
            keep_sent: self.keep_sent,
        }
    }

    /// The client to publish through. What it cannot publish within a lease it gives up.
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

fn time(text: &str) -> Result<Duration, String> {
    let wrong = || "a time such as 7d, 12h, 30m or 90s, one second at least".to_owned();
    let unit = text.chars().last().ok_or_else(wrong)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return Err(wrong()),
    };
    let count: u32 = text[..text.len() - unit.len_utf8()].parse().map_err(|_| wrong())?;
    let total = u64::from(count) * seconds;
    // What the database takes.
    if total == 0 || i32::try_from(total).is_err() {
        Err(wrong())
    } else {
        Ok(Duration::from_secs(total))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit() {
        for (text, seconds) in [("90s", 90), ("30m", 1800), ("12h", 43_200), ("7d", 604_800)] {
            assert_eq!(time(text).unwrap().as_secs(), seconds);
        }
        for wrong in ["", "7", "d", "0s", "-1d", "1.5h", "7w", "7é", "99999d"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }
}
