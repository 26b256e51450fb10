//! `prombus bench export`.

use std::error::Error;
use std::sync::Arc;

use prombus_bench::{ExportReport, Load, Tally, Target, Wire, bench_export, bench_publish};
use prombus_client::transport::HttpClient;
use prombus_proto::Topic;

use super::load_arguments::event_bytes;
use super::progress::{ProgressStyle, with_progress};
use super::report::{self, PrintArguments, Rows};
use super::spawned_server::SpawnedServer;
use super::target_arguments::StoreArguments;
use crate::cli::human_bytes::human_bytes;
use crate::cli::server_arguments::AccessArguments;

#[derive(clap::Args)]
pub(super) struct ExportBenchArguments {
    /// URL of a server with the topic; default: spawn a server process and publish first
    #[arg(long, value_name = "URL", conflicts_with_all = ["engine", "data", "n", "size"])]
    url: Option<String>,
    /// Topic to export
    #[arg(long, value_name = "TOPIC", default_value = "bench.topic")]
    topic: Topic,
    /// Number of events to publish first
    #[arg(long, value_name = "COUNT", default_value_t = 100_000)]
    n: u64,
    /// Event size, as for bench publish
    #[arg(long, value_name = "SIZE", default_value = "236", value_parser = event_bytes)]
    size: usize,
    #[command(flatten)]
    store: StoreArguments,
    #[command(flatten)]
    access: AccessArguments,
    #[command(flatten)]
    print: PrintArguments,
}

/// Events per frame when publishing the topic.
const BATCH: u64 = 100;

pub(super) async fn run(arguments: ExportBenchArguments) -> Result<(), Box<dyn Error>> {
    let ExportBenchArguments { url, topic, n, size, store, access, print } = arguments;
    let Some(url) = url else {
        let store = store.choose()?;
        let server = SpawnedServer::start(&store, &["limits.enabled=false"])?;
        let load = Load { events: n, size, batch: BATCH, topic: topic.clone(), ..Load::default() };
        let target = Target::Wire(Wire::new(server.gateway()?, None));
        let tally = Arc::new(Tally::default());
        let work = bench_publish(&target, &load, &tally);
        with_progress("published", ProgressStyle::RateAndLatency, &tally, work).await?;
        measure(HttpClient::new(server.http()?, None)?, &topic, &print).await?;
        return server.stop();
    };
    measure(access.at(&url)?.http()?, &topic, &print).await
}

async fn measure(
    mut http: HttpClient,
    topic: &Topic,
    print: &PrintArguments,
) -> Result<(), Box<dyn Error>> {
    let tally = Arc::new(Tally::default());
    let work = bench_export(&mut http, topic, &tally);
    let report = with_progress("exported", ProgressStyle::Rate, &tally, work).await?;
    Ok(print.print(&report, None, rows(&report))?)
}

fn rows(report: &ExportReport) -> Rows {
    vec![
        ("exported", report::count(report.exported)),
        ("bytes", human_bytes(report.bytes as f64)),
        ("time", format!("{:.0} ms", report.ms)),
        ("first byte after", format!("{:.3} ms", report.first_byte_ms)),
        ("rate", report::rate(report.mps)),
        ("throughput", format!("{} MB/s", report.mb_per_sec)),
    ]
}
