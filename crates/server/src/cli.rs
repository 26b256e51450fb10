//! The command line: which commands there are, and what each takes.

mod serve;

use std::error::Error;

use clap::{Parser, Subcommand};

use serve::ServeArguments;

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
}

/// Does what the command line says.
pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    match arguments.command {
        Some(Command::Serve(serve)) => serve::run(serve),
        None => serve::run(arguments.serve),
    }
}
