//! The command line: which commands there are, and what each takes.

mod connection;
mod publish;
mod serve;
mod server_address;
mod subscribe;

use std::error::Error;
use std::future::Future;

use clap::{Parser, Subcommand};

use publish::PublishArguments;
use serve::ServeArguments;
use subscribe::SubscribeArguments;

/// A durable event bus that any program can talk to in plain JSON.
///
/// Alone it serves. Publish and consume by WebSocket, in any language.
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
}

/// Does what the command line says.
pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    match arguments.command {
        Some(Command::Serve(serve)) => serve::run(serve),
        Some(Command::Publish(publish)) => talk(publish::run(publish)),
        Some(Command::Subscribe(subscribe)) => talk(subscribe::run(subscribe)),
        None => serve::run(arguments.serve),
    }
}

/// Runs a command that talks to a server. What it still reads or writes when it is over is not
/// waited for.
fn talk(command: impl Future<Output = Result<(), Box<dyn Error>>>) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(command);
    runtime.shutdown_background();
    result
}
