//! `prombus bench`.
//!
//! | idea | file |
//! |---|---|
//! | what work is done | `load_arguments` |
//! | on what: in this process, on a server, on one of our own | `target_arguments`, `own_server` |
//! | how far it is | `watching` |
//! | what it came to | `printing` |
//! | the commands | `publish`, `subscribe`, `connections`, `export`, `limits` |

mod connections;
mod export;
mod limits;
mod load_arguments;
mod own_server;
mod printing;
mod publish;
mod subscribe;
mod target_arguments;
mod watching;

use std::error::Error;

use clap::Subcommand;

use connections::ConnectionsArguments;
use export::ExportBenchArguments;
use limits::LimitsArguments;
use publish::PublishBenchArguments;
use subscribe::SubscribeBenchArguments;

/// What `bench` takes.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  prombus bench publish
  prombus bench publish --n 1000000 --batch 100 --engine memory
  prombus bench subscribe --serve --rate 5000
  prombus bench publish --url ws://127.0.0.1:8090/ --connections 16

Without --url, --serve or --engine, publish and subscribe measure the bus in this process, on the disk
engine in a temporary folder, fsynced: how fast it is on this machine, without a network. Output is a
table, or one JSON object with --json or where it is no terminal. Figures: docs/bench.md.")]
pub(crate) struct BenchArguments {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// How many events a second are published, and how long each takes to be answered.
    Publish(PublishBenchArguments),
    /// How long an event takes to its consumer, or how fast a backlog is consumed, one ACK each.
    Subscribe(SubscribeBenchArguments),
    /// What idle and active connections cost a server.
    Connections(ConnectionsArguments),
    /// How fast a topic is exported.
    Export(ExportBenchArguments),
    /// How exact the limits of rate are.
    Limits(LimitsArguments),
}

pub(crate) fn run(arguments: BenchArguments) -> Result<(), Box<dyn Error>> {
    // One for each processor, as many as a server has: a bus in this process is to be as fast as there.
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
