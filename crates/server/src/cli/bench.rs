//! `prombus bench`.
//!
//! - `publish`, `subscribe`, `connections`, `export`, `limits`: the subcommands
//! - `load_arguments`: the load to generate
//! - `target_arguments`: the target: a bus in this process, a running server, or a spawned one
//! - `left_topics`: what is removed from a running server at the end
//! - `spawned_server`: a server process started for the benchmark
//! - `progress`: the status line
//! - `report`: prints the results

mod connections;
mod export;
mod left_topics;
mod limits;
mod load_arguments;
mod progress;
mod publish;
mod report;
mod spawned_server;
mod subscribe;
mod target_arguments;

use std::error::Error;

use clap::Subcommand;

use connections::ConnectionsArguments;
use export::ExportBenchArguments;
use limits::LimitsArguments;
use publish::PublishBenchArguments;
use subscribe::SubscribeBenchArguments;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  prombus bench publish
  prombus bench publish --n 1000000 --batch 100 --engine memory
  prombus bench subscribe --serve --rate 5000
  prombus bench publish --url ws://127.0.0.1:8090/ --connections 16

Without --url, --serve or --engine, publish and subscribe measure a bus inside this process, without a
network, on the disk engine in a temporary directory, with fsync. Prints a table; with --json, or when
stdout is not a terminal, one JSON object. docs/bench.md explains the figures.")]
pub(crate) struct BenchArguments {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// Measure the publish rate and the latency of confirmations
    Publish(PublishBenchArguments),
    /// Measure the latency to a consumer, or with --backlog the rate of consumption, one ACK per event
    Subscribe(SubscribeBenchArguments),
    /// Measure the memory of idle or active connections
    Connections(ConnectionsArguments),
    /// Measure the throughput of an export
    Export(ExportBenchArguments),
    /// Measure how exactly rate limits are enforced
    Limits(LimitsArguments),
}

pub(crate) fn run(arguments: BenchArguments) -> Result<(), Box<dyn Error>> {
    // One thread per CPU, like a server, so that a bus in this process is as fast as in one.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        match arguments.bench {
            Bench::Publish(publish) => publish::run(publish).await,
            Bench::Subscribe(subscribe) => subscribe::run(subscribe).await,
            Bench::Connections(connections) => connections::run(connections).await,
            Bench::Export(export) => export::run(export).await,
            Bench::Limits(limits) => limits::run(limits).await,
        }
    });
    runtime.shutdown_background();
    result
}
