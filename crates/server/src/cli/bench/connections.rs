//! `prombus bench connections`.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use prombus_bench::{ConnectionsPlan, ConnectionsReport, Load, Tally, Wire, bench_connections};
use prombus_client::transport::Protocol;
use prombus_proto::Topic;

use super::own_server::OwnServer;
use super::printing::{self, Circumstances, PrintArguments, Rows, run_rows};
use super::target_arguments::StoreArguments;
use super::watching::{Shown, watched};
use crate::cli::server_arguments::AccessArguments;
use crate::cli::status_line::readable_bytes;

/// What `bench connections` takes.
#[derive(clap::Args)]
pub(super) struct ConnectionsArguments {
    /// How many connections
    #[arg(long, value_name = "COUNT", default_value_t = 1000)]
    n: usize,
    /// How many events a second each of them publishes; without it they are idle
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<f64>,
    /// For how long they are idle or publish
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    seconds: f64,
    /// How many bytes an event has, as with bench publish
    #[arg(long, value_name = "BYTES", default_value_t = 236)]
    size: usize,
    /// How many topics the events go to in turn
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    topics: usize,
    /// The topic, or how the names of all topics begin
    #[arg(long, value_name = "TOPIC", default_value = "bench.topic")]
    topic: Topic,
    /// The server's WebSocket gateway; without it, a server process of our own is started
    #[arg(long, value_name = "URL", conflicts_with_all = ["engine", "data"])]
    url: Option<String>,
    /// The process of that server, on this machine, to look at its memory
    #[arg(long, value_name = "PID", requires = "url")]
    pid: Option<u32>,
    #[command(flatten)]
    store: StoreArguments,
    #[command(flatten)]
    access: AccessArguments,
    #[command(flatten)]
    print: PrintArguments,
}

/// Connections of a server beside ours: the first, and whoever looks on.
const MORE_CONNECTIONS: usize = 16;

pub(super) async fn run(arguments: ConnectionsArguments) -> Result<(), Box<dyn Error>> {
    if arguments.rate.is_some_and(|rate| rate <= 0.0) {
        return Err("--rate has to be more than 0; idle is without it".into());
    }
    let time = Duration::try_from_secs_f64(arguments.seconds)
        .map_err(|_| "--seconds has to be a time, such as 10")?;
    let store;
    let (server, wire, name) = match &arguments.url {
        Some(url) => {
            let address = arguments.access.address(url, Protocol::WebSocket)?;
            (None, Wire::new(address, arguments.access.token()), url.clone())
        }
        None => {
            store = arguments.store.choose()?;
            let most = format!("gateway.max_connections={}", arguments.n + MORE_CONNECTIONS);
            let server = OwnServer::start(&store, &["limits.enabled=false", &most])?;
            let name = format!("a server process of its own, on {}", store.name());
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
        pid: server.as_ref().map(OwnServer::pid).or(arguments.pid),
    };
    let tally = Arc::new(Tally::default());
    let work = bench_connections(&wire, &plan, &tally);
    let report = watched("published", Shown::RateAndLatency, &tally, work).await?;
    let load = plan.whole_load();
    let circumstances = arguments.rate.map(|_| Circumstances::of(&load, &name, None));
    arguments.print.print(&report, circumstances.as_ref(), rows(&report))?;
    server.map_or(Ok(()), OwnServer::stop)
}

fn rows(report: &ConnectionsReport) -> Rows {
    let mut rows = vec![
        ("connections", printing::count(report.connections as u64)),
        ("opened in", format!("{:.0} ms", report.opened_ms)),
    ];
    let memory = [
        ("memory with one", report.memory_before),
        ("memory with all", report.memory_idle),
        ("memory each", report.memory_each),
        ("memory after publishing", report.memory_active),
    ];
    for (name, bytes) in memory {
        rows.extend(bytes.map(|bytes| (name, readable_bytes(bytes as f64))));
    }
    let active = report.active.iter();
    rows.extend(active.flat_map(|active| run_rows("published", active.published, &active.figures)));
    rows
}
