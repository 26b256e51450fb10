//! The binary `prombus`.

mod serve;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

/// A durable event bus that any program can talk to in plain JSON.
///
/// So far it opens, checks and closes its store; nothing listens on the network yet.
#[derive(Debug, Parser)]
#[command(name = "prombus", version, args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: ServeArguments,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve; the same as no command at all.
    Serve(ServeArguments),
}

#[derive(Debug, clap::Args)]
struct ServeArguments {
    /// Where events and state are kept
    #[arg(long, value_name = "DIR", default_value = "./prombus-data")]
    data: PathBuf,
    /// What keeps them
    #[arg(long, value_enum, default_value_t = EngineChoice::Disk)]
    engine: EngineChoice,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum EngineChoice {
    /// Files under --data
    Disk,
    /// Nothing: all is gone when the process ends
    Memory,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let serve = match arguments.command {
        Some(Command::Serve(serve)) => serve,
        None => arguments.serve,
    };
    match serve::run(&serve) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("prombus: {error}");
            ExitCode::FAILURE
        }
    }
}
