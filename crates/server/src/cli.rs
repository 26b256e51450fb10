//! The command line: which commands there are, and what each takes.

mod bench;
mod connection;
mod export;
mod groups;
mod import;
mod migrate;
mod outbox;
mod progress;
mod publish;
mod replay;
mod serve;
mod server_arguments;
mod status_line;
mod stopping;
mod stored_line;
mod subscribe;
mod table;
mod topics;
mod tries;

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
/// Alone it serves. Publish and consume by WebSocket, replay and export by HTTP, in any language.
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
    /// Serve; the same as no command at all.
    Serve(ServeArguments),
    /// Publish events to a running server, from arguments or lines of JSON.
    Publish(PublishArguments),
    /// Follow a topic of a running server, one event a line.
    Subscribe(SubscribeArguments),
    /// Print events that a topic holds, one a line.
    Replay(ReplayArguments),
    /// Write all events of a topic to a file or to standard output, one a line.
    Export(ExportArguments),
    /// Publish what export wrote.
    Import(ImportArguments),
    /// List topics, look at one, or change its settings.
    Topics(TopicsArguments),
    /// List who consumes a topic, and how far behind they are.
    Groups(GroupsArguments),
    /// Publish what services left in an outbox collection of their MongoDB.
    Outbox(OutboxArguments),
    /// Bring a MongoDB database to what this version needs, and its topics to how long they keep events.
    Migrate(MigrateArguments),
    /// Measure how fast a bus is: in this process, on a server, or on one of our own.
    Bench(BenchArguments),
}

/// Does what the command line says.
pub(crate) fn run() -> Result<ExitCode, Box<dyn Error>> {
    let arguments = Arguments::parse();
    let done = match arguments.command {
        Some(Command::Migrate(migrate)) => return talk(migrate::run(migrate)),
        Some(Command::Serve(serve)) => serve::run(serve),
        Some(Command::Publish(publish)) => talk(publish::run(publish)),
        Some(Command::Subscribe(subscribe)) => talk(subscribe::run(subscribe)),
        Some(Command::Replay(replay)) => talk(replay::run(replay)),
        Some(Command::Export(export)) => talk(export::run(export)),
        Some(Command::Import(import)) => talk(import::run(import)),
        Some(Command::Topics(topics)) => talk(topics::run(topics)),
        Some(Command::Groups(groups)) => talk(groups::run(groups)),
        Some(Command::Outbox(outbox)) => talk(outbox::run(outbox)),
        Some(Command::Bench(bench)) => bench::run(bench),
        None => serve::run(arguments.serve),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// Runs a command that talks to a server. What it still reads or writes when it is over is not
/// waited for.
fn talk<T>(command: impl Future<Output = Result<T, Box<dyn Error>>>) -> Result<T, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(command);
    runtime.shutdown_background();
    result
}
