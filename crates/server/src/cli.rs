//! The command line: one module per subcommand, and what they share.
//!
//! - server: `serve` with its `banner`, `migrate`
//! - whole stores: `backup` over HTTP, `restore` and `verify` on files
//! - over WebSocket: `publish`, `subscribe`, through `connection`
//! - over HTTP: `replay`, `export`, `import`, `topics`, `groups`, `dlq`
//! - workers and measurements: `outbox`, `bench`
//! - on this machine: `context`, `doctor`, `completions`, `man`
//! - the server to connect to: `server_arguments`, `server_url`, `contexts`
//! - what users write: `times`, `sizes`, `start_from`
//! - what they read: `output`, `table`, `human_bytes`, `human_count`, `one_line`, `pretty_json`, `status_line`,
//!   `publish_progress`, `completed_share`, `rate_limit_notice`, `advice`
//! - shared: `stop_signal`, `retries`, `event_line`

mod advice;
mod backup;
mod banner;
mod bench;
mod completed_share;
mod completions;
mod connection;
mod context;
mod contexts;
mod dlq;
mod doctor;
mod event_line;
mod export;
mod groups;
mod human_bytes;
mod human_count;
mod import;
mod man;
mod migrate;
mod one_line;
mod outbox;
mod output;
mod pretty_json;
mod publish;
mod publish_progress;
mod rate_limit_notice;
mod reloading;
mod replay;
mod restore;
mod retries;
mod serve;
mod server_arguments;
mod server_url;
mod sizes;
mod start_from;
mod status_line;
mod stop_signal;
mod subscribe;
mod table;
mod times;
mod topics;
mod verify;

use std::error::Error;
use std::future::Future;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use advice::with_advice;
use backup::BackupArguments;
use bench::BenchArguments;
use completions::CompletionsArguments;
use context::ContextArguments;
use dlq::DlqArguments;
use doctor::DoctorArguments;
use export::ExportArguments;
use groups::GroupsArguments;
use import::ImportArguments;
use man::ManArguments;
use migrate::MigrateArguments;
use outbox::OutboxArguments;
use output::{SIGPIPE_STATUS, is_closed_pipe};
use publish::PublishArguments;
use replay::ReplayArguments;
use restore::RestoreArguments;
use serve::ServeArguments;
use subscribe::SubscribeArguments;
use topics::TopicsArguments;
use verify::VerifyArguments;

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
    /// List consumer groups and their lag, show one, move, change or delete it
    Groups(GroupsArguments),
    /// List the dead letters of a topic, redrive or drop them
    Dlq(DlqArguments),
    /// Publish events from an outbox collection in MongoDB
    Outbox(OutboxArguments),
    /// Copy the store of a running server to a file
    Backup(BackupArguments),
    /// Make a store of a backup
    Restore(RestoreArguments),
    /// Check every checksum of a backup, or of a store that no server uses
    Verify(VerifyArguments),
    /// Migrate a MongoDB database to the layout and retention this version needs
    Migrate(MigrateArguments),
    /// Measure throughput and latency, in process or against a server
    Bench(BenchArguments),
    /// Look for problems of the configuration, the store, this machine and a running server
    Doctor(DoctorArguments),
    /// Name servers and choose one, so that commands need no --url
    Context(ContextArguments),
    /// Print a script that completes commands and options in a shell
    Completions(CompletionsArguments),
    /// Print the manual page, or write those of all commands
    Man(ManArguments),
}

pub(crate) fn run() -> Result<ExitCode, Box<dyn Error>> {
    let arguments = Arguments::parse();
    let result = match arguments.command {
        Some(Command::Migrate(migrate)) => return block_on(migrate::run(migrate)),
        Some(Command::Verify(verify)) => return verify::run(&verify),
        Some(Command::Serve(serve)) => serve::run(serve),
        Some(Command::Publish(publish)) => block_on(publish::run(publish)),
        Some(Command::Subscribe(subscribe)) => block_on(subscribe::run(subscribe)),
        Some(Command::Replay(replay)) => block_on(replay::run(replay)),
        Some(Command::Export(export)) => block_on(export::run(export)),
        Some(Command::Import(import)) => block_on(import::run(import)),
        Some(Command::Topics(topics)) => block_on(topics::run(topics)),
        Some(Command::Groups(groups)) => block_on(groups::run(groups)),
        Some(Command::Dlq(dlq)) => block_on(dlq::run(dlq)),
        Some(Command::Outbox(outbox)) => block_on(outbox::run(outbox)),
        Some(Command::Backup(backup)) => block_on(backup::run(backup)),
        Some(Command::Restore(restore)) => restore::run(&restore),
        Some(Command::Bench(bench)) => bench::run(bench),
        Some(Command::Doctor(doctor)) => return block_on(doctor::run(doctor)),
        Some(Command::Context(context)) => context::run(context),
        Some(Command::Completions(completions)) => completions::run(&completions),
        Some(Command::Man(man)) => man::run(man),
        None => serve::run(arguments.serve),
    };
    match result {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) if is_closed_pipe(&*error) => Ok(ExitCode::from(SIGPIPE_STATUS)),
        Err(error) => Err(with_advice(error.to_string()).into()),
    }
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
