//! `prombus backup`.
//!
//! - `download`: receives a backup and checks it while it is written
//! - `target`: the file or stdout

mod download;
mod target;

use std::error::Error;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use prombus_client::transport::{HttpFailure, Query};
use prombus_engine::disk::backup::{ArchiveError, BackupSummary};
use serde_json::json;

use super::human_bytes::human_bytes;
use super::server_arguments::HttpArguments;
use super::status_line::StatusLine;
use super::stop_signal::StopSignal;
use download::Download;
use target::Target;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  prombus backup --output prombus-2026-01-31.backup
  prombus backup --output - | ssh backups 'cat > prombus.backup'

Copies everything as it is at one moment: topics, groups with their cursors, marks, state and settings. The
server goes on meanwhile. The file appears under its name only when it is complete, checked and on disk.
`prombus verify FILE` checks it again, and `prombus restore FILE --data DIR` makes a store of it.

The token needs the scope admin. Only the disk engine has backups; with MongoDB, use mongodump.")]
pub(crate) struct BackupArguments {
    /// Write to this file, or to stdout if it is -
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
    /// Back up what is left of damaged files, and name them, instead of failing
    #[arg(long)]
    include_damaged: bool,
    #[command(flatten)]
    server: HttpArguments,
}

pub(crate) async fn run(arguments: BackupArguments) -> Result<(), Box<dyn Error>> {
    let BackupArguments { output, force, include_damaged, server } = arguments;
    let mut stop_signal = StopSignal::new()?;
    let target = Target::prepare(output, force)?;
    let mut client = server.client()?;
    let path = Query::of("/backup").with("damaged", include_damaged.then_some("include"));
    let mut line = StatusLine::new(false);
    let summary = tokio::select! {
        result = async {
            let answer = client.get(path.as_str()).await?;
            Download::start(&target)?.receive(answer, &mut line).await
        } => result,
        () = stop_signal.recv() => Err(DownloadError::Stopped),
    };
    let summary = match summary {
        Ok(summary) => summary,
        Err(error) => {
            target.discard();
            return Err(error.into());
        }
    };
    target.keep()?;
    line.finish(&progress(&line, summary.bytes, summary.bytes, summary.compressed_bytes));
    for fault in &summary.recorded {
        line.println(&format!("damaged in the backup: {fault}"));
    }
    match target.path() {
        Some(path) => print(&path.display().to_string(), &summary)?,
        None if summary.recorded.is_empty() => {}
        None => return Err(format!("{} files are damaged", summary.recorded.len()).into()),
    }
    Ok(())
}

/// Why there is no backup.
#[derive(Debug, thiserror::Error)]
enum DownloadError {
    #[error(transparent)]
    Http(#[from] HttpFailure),
    #[error("the backup is of no use: {0}")]
    Archive(ArchiveError),
    #[error("cannot write: {0}")]
    Write(io::Error),
    #[error("stopped; the backup is not complete")]
    Stopped,
}

fn progress(line: &StatusLine, done: u64, total: u64, received: u64) -> String {
    let percent = done.saturating_mul(100) / total.max(1);
    let seconds = line.seconds();
    let speed = human_bytes(done as f64 / seconds);
    let left = seconds * total.saturating_sub(done) as f64 / (done as f64).max(1.0);
    let left = if done < total { format!(", {left:.0} s left") } else { String::new() };
    let (done, total) = (human_bytes(done as f64), human_bytes(total as f64));
    let received = human_bytes(received as f64);
    format!("backed up {done} of {total} ({received} compressed), {speed}/s, {percent}%{left}")
}

fn print(file: &str, summary: &BackupSummary) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let BackupSummary { files, bytes, compressed_bytes, moment, recorded } = summary;
    if io::stdout().is_terminal() {
        let (size, compressed) =
            (human_bytes(*bytes as f64), human_bytes(*compressed_bytes as f64));
        return writeln!(
            out,
            "{file}: {files} files, {size}, compressed to {compressed}; verified"
        );
    }
    let damaged: Vec<_> = recorded.iter().map(|fault| &fault.file).collect();
    let summary = json!({
        "file": file, "files": files, "bytes": bytes, "compressed_bytes": compressed_bytes,
        "ts": moment, "damaged": damaged,
    });
    writeln!(out, "{summary}")
}
