//! The command line: one module per subcommand, and what they share.
//!
//! - server: `serve`, `migrate`
//! - over WebSocket: `publish`, `subscribe`, through `connection`
//! - over HTTP: `replay`, `export`, `import`, `topics`, `groups`
//! - workers and measurements: `outbox`, `bench`
//! - shared: `server_arguments`, `stop_signal`, `retries`, `status_line`, `publish_progress`, `table`,
//!   `human_bytes`, `event_line`

mod bench;
mod connection;
mod event_line;
mod export;
mod groups;
mod human_bytes;
mod import;
mod migrate;
mod outbox;
mod publish;
mod publish_progress;
mod reloading;
mod replay;
mod retries;
mod serve;
mod server_arguments;
mod status_line;
mod stop_signal;
mod subscribe;
mod table;
mod topics;

use std::error::Error;
use std::future::Future;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use bench::BenchArguments;
use export::ExportArguments;
use groups::GroupsArguments;
use import::ImportArguments;
use migrate::MigrateArguments;
use outbox::OutboxArguments;
use publish::PublishArguments;
use replay::ReplayArguments;
use serve::ServeArguments;
use subscribe::SubscribeArguments;
use topics::TopicsArguments;

/// A durable event bus that any program can talk to in plain JSON.
///
/// Without a subcommand, starts the server. Clients in any language publish and consume over WebSocket, and
/// publish, replay and export over HTTP.
#[derive(Parser)]
#[command(name = "prombus", version, args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: ServeArguments,
}

#[derive(Subcommand)]
enum Command {
    /// Start the server; the same as prombus without a subcommand
    Serve(ServeArguments),
    /// Publish events from arguments or stdin
    Publish(PublishArguments),
    /// Consume a topic as a member of a consumer group, one event per line
    Subscribe(SubscribeArguments),
    /// Print the stored events of a topic, one event per line
    Replay(ReplayArguments),
    /// Export a topic to a file or stdout, one event per line
    Export(ExportArguments),
    /// Import events from a file or stdin, as written by export
    Import(ImportArguments),
    /// List topics, show one, or change its settings
    Topics(TopicsArguments),
    /// List consumer groups and their lag
    Groups(GroupsArguments),
    /// Publish events from an outbox collection in MongoDB
    Outbox(OutboxArguments),
    /// Migrate a MongoDB database to the layout and retention this version needs
    Migrate(MigrateArguments),
    /// Measure throughput and latency, in process or against a server
    Bench(BenchArguments),
}

pub(crate) fn run() -> Result<ExitCode, Box<dyn Error>> {
    let arguments = Arguments::parse();
    let result = match arguments.command {
        Some(Command::Migrate(migrate)) => return block_on(migrate::run(migrate)),
        Some(Command::Serve(serve)) => serve::run(serve),
        Some(Command::Publish(publish)) => block_on(publish::run(publish)),
        Some(Command::Subscribe(subscribe)) => block_on(subscribe::run(subscribe)),
        Some(Command::Replay(replay)) => block_on(replay::run(replay)),
        Some(Command::Export(export)) => block_on(export::run(export)),
        Some(Command::Import(import)) => block_on(import::run(import)),
        Some(Command::Topics(topics)) => block_on(topics::run(topics)),
        Some(Command::Groups(groups)) => block_on(groups::run(groups)),
        Some(Command::Outbox(outbox)) => block_on(outbox::run(outbox)),
        Some(Command::Bench(bench)) => bench::run(bench),
        None => serve::run(arguments.serve),
    };
    result.map(|()| ExitCode::SUCCESS)
}

/// Runs a client command. Does not wait for blocking reads and writes it leaves behind.
fn block_on<T>(
    command: impl Future<Output = Result<T, Box<dyn Error>>>,
) -> Result<T, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(command);
    runtime.shutdown_background();
    result
}
