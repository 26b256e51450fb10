//! `prombus bench export`.

use std::error::Error;
use std::sync::Arc;

use prombus_bench::{ExportReport, Load, Tally, Target, Wire, bench_export, bench_publish};
use prombus_client::transport::HttpClient;
use prombus_proto::Topic;

use super::own_server::OwnServer;
use super::printing::{self, PrintArguments, Rows};
use super::target_arguments::StoreArguments;
use super::watching::{Shown, watched};
use crate::cli::server_arguments::AccessArguments;
use crate::cli::status_line::readable_bytes;

/// What `bench export` takes.
#[derive(clap::Args)]
pub(super) struct ExportBenchArguments {
    /// The server's HTTP address, whose topic is exported as it is; without it, a server process of
    /// our own is started, and the topic published first
    #[arg(long, value_name = "URL", conflicts_with_all = ["engine", "data", "n", "size"])]
    url: Option<String>,
    /// The topic
    #[arg(long, value_name = "TOPIC", default_value = "bench.topic")]
    topic: Topic,
    /// How many events are published
    #[arg(long, value_name = "COUNT", default_value_t = 100_000)]
    n: u64,
    /// How many bytes an event has, as with bench publish
    #[arg(long, value_name = "BYTES", default_value_t = 236)]
    size: usize,
    #[command(flatten)]
    store: StoreArguments,
    #[command(flatten)]
    access: AccessArguments,
    #[command(flatten)]
    print: PrintArguments,
}

/// How many events a frame has that the topic is published with.
const BATCH: u64 = 100;

pub(super) async fn run(arguments: ExportBenchArguments) -> Result<(), Box<dyn Error>> {
    let ExportBenchArguments { url, topic, n, size, store, access, print } = arguments;
    let Some(url) = url else {
        let store = store.choose()?;
        let server = OwnServer::start(&store, &["limits.enabled=false"])?;
        let load = Load { events: n, size, batch: BATCH, topic: topic.clone(), ..Load::default() };
        let target = Target::Wire(Wire::new(server.gateway()?, None));
        let tally = Arc::new(Tally::default());
        let work = bench_publish(&target, &load, &tally);
        watched("published", Shown::RateAndLatency, &tally, work).await?;
        measure(HttpClient::new(server.http()?, None)?, &topic, &print).await?;
        return server.stop();
    };
    measure(access.http(&url)?, &topic, &print).await
}

async fn measure(
    mut http: HttpClient,
    topic: &Topic,
    print: &PrintArguments,
) -> Result<(), Box<dyn Error>> {
    let tally = Arc::new(Tally::default());
    let work = bench_export(&mut http, topic, &tally);
    let report = watched("exported", Shown::Rate, &tally, work).await?;
    Ok(print.print(&report, None, rows(&report))?)
}

fn rows(report: &ExportReport) -> Rows {
    vec![
        ("exported", printing::count(report.exported)),
        ("bytes", readable_bytes(report.bytes as f64)),
        ("time", format!("{:.0} ms", report.ms)),
        ("first byte after", format!("{:.3} ms", report.first_byte_ms)),
        ("rate", printing::rate(report.mps)),
        ("throughput", format!("{} MB/s", report.mb_per_sec)),
    ]
}
