//! `prombus bench connections`.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use prombus_bench::{ConnectionsPlan, ConnectionsReport, Load, Tally, Wire, bench_connections};
use prombus_proto::Topic;

use super::left_topics::LeftTopics;
use super::load_arguments::event_bytes;
use super::progress::{ProgressStyle, with_progress};
use super::report::{self, PrintArguments, Rows, RunSettings, run_rows};
use super::spawned_server::SpawnedServer;
use super::target_arguments::StoreArguments;
use crate::cli::human_bytes::human_bytes;
use crate::cli::server_arguments::AccessArguments;
use crate::cli::times::seconds;

#[derive(clap::Args)]
pub(super) struct ConnectionsArguments {
    /// Number of connections
    #[arg(long, value_name = "COUNT", default_value_t = 1000)]
    n: usize,
    /// Events per second each connection publishes; default: none, the connections stay idle
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<f64>,
    /// Duration of the measurement, such as 2m or in seconds
    #[arg(long, value_name = "TIME", default_value = "10", value_parser = seconds)]
    seconds: f64,
    /// Event size, as for bench publish
    #[arg(long, value_name = "SIZE", default_value = "236", value_parser = event_bytes)]
    size: usize,
    /// Number of topics; events go to each in turn
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    topics: usize,
    /// Topic, or name prefix if there are several
    #[arg(long, value_name = "TOPIC", default_value = "bench.topic")]
    topic: Topic,
    /// URL of the server: http, https, ws or wss; default: spawn a server process
    #[arg(long, value_name = "URL", conflicts_with_all = ["engine", "data"])]
    url: Option<String>,
    /// Keep the topics that the benchmark creates at that server; default: they are deleted at the end
    #[arg(long, requires = "url")]
    keep: bool,
    /// Process id of that server on this machine, to measure its memory
    #[arg(long, value_name = "PID", requires = "url")]
    pid: Option<u32>,
    #[command(flatten)]
    store: StoreArguments,
    #[command(flatten)]
    access: AccessArguments,
    #[command(flatten)]
    print: PrintArguments,
}

/// Connections the spawned server accepts beyond the measured ones.
const SPARE_CONNECTIONS: usize = 16;

pub(super) async fn run(arguments: ConnectionsArguments) -> Result<(), Box<dyn Error>> {
    if arguments.rate.is_some_and(|rate| rate <= 0.0) {
        return Err("--rate must be more than 0; leave it out for idle connections".into());
    }
    let time =
        Duration::try_from_secs_f64(arguments.seconds).map_err(|_| "--seconds is too long")?;
    let store;
    let (server, wire, name) = match &arguments.url {
        Some(url) => {
            let endpoint = arguments.access.at(url)?;
            (
                None,
                Wire::new(endpoint.gateway()?, endpoint.token().map(ToOwned::to_owned)),
                url.clone(),
            )
        }
        None => {
            store = arguments.store.choose()?;
            let count = arguments.n + SPARE_CONNECTIONS;
            let [total, per_address] = ["max_connections", "max_connections_per_address"]
                .map(|name| format!("gateway.{name}={count}"));
            let settings = ["limits.enabled=false", &total, &per_address];
            let server = SpawnedServer::start(&store, &settings)?;
            let name = format!("spawned server, {}", store.name());
            let wire = Wire::new(server.gateway()?, None);
            (Some(server), wire, name)
        }
    };
    let plan = ConnectionsPlan {
        load: Load {
            connections: arguments.n,
            size: arguments.size,
            topics: arguments.topics,
            topic: arguments.topic.clone(),
            ..Load::default()
        },
        rate_each: arguments.rate,
        time,
        pid: server.as_ref().map(SpawnedServer::pid).or(arguments.pid),
    };
    let tally = Arc::new(Tally::default());
    let left = match &arguments.url {
        Some(url) if !arguments.keep && arguments.rate.is_some() => {
            LeftTopics::among(&arguments.access.at(url)?, plan.load.topics()?).await
        }
        _ => None,
    };
    let work = bench_connections(&wire, &plan, &tally);
    let measured = with_progress("published", ProgressStyle::RateAndLatency, &tally, work).await;
    if let Some(left) = left {
        left.remove().await;
    }
    let report = measured?;
    let load = plan.total_load();
    let settings = arguments.rate.map(|_| RunSettings::of(&load, &name, None));
    arguments.print.print(&report, settings.as_ref(), rows(&report))?;
    server.map_or(Ok(()), SpawnedServer::stop)
}

fn rows(report: &ConnectionsReport) -> Rows {
    let mut rows = vec![
        ("connections", report::count(report.connections as u64)),
        ("opened in", format!("{:.0} ms", report.opened_ms)),
    ];
    let memory = [
        ("memory, one connection", report.memory_before),
        ("memory, all connections", report.memory_idle),
        ("memory per connection", report.memory_each),
        ("memory after publishing", report.memory_active),
    ];
    for (name, bytes) in memory {
        rows.extend(bytes.map(|bytes| (name, human_bytes(bytes as f64))));
    }
    let active = report.active.iter();
    rows.extend(active.flat_map(|active| run_rows("published", active.published, &active.figures)));
    rows
}
