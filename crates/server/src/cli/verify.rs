//! `prombus verify`.

use std::error::Error;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use prombus_engine::OpenError;
use prombus_engine::disk::backup::verify_backup;
use prombus_engine::disk::{Fault, Report, VerifyError, verify_store};
use serde_json::json;

use super::human_bytes::human_bytes;
use super::status_line::StatusLine;
use super::table::Table;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  prombus verify ./prombus-data
  prombus verify prombus-2026-01-31.backup

Reads every file and checks every checksum, of a data folder that no server uses or of a backup. Changes
nothing. Prints what is there by kind, and on stderr one line for each damaged or missing file.

Exit status:
  0  everything is intact
  1  something is damaged or missing, or it could not be checked
  2  invalid usage")]
pub(crate) struct VerifyArguments {
    /// Data folder, or file that prombus backup wrote
    path: PathBuf,
}

pub(crate) fn run(arguments: &VerifyArguments) -> Result<ExitCode, Box<dyn Error>> {
    let path = &arguments.path;
    let mut line = StatusLine::new(false);
    let progress = &mut |done: u64, total: u64| {
        line.update(|line| {
            let percent = done.saturating_mul(100) / total.max(1);
            let speed = human_bytes(done as f64 / line.seconds());
            let (done, total) = (human_bytes(done as f64), human_bytes(total as f64));
            format!("checked {done} of {total}, {speed}/s, {percent}%")
        });
    };
    let is_folder =
        path.metadata().map_err(|error| format!("{}: {error}", path.display()))?.is_dir();
    let report = match is_folder {
        true => verify_store(path, progress).map_err(|error| match error {
            VerifyError::Open(error @ OpenError::Locked { .. }) => {
                format!("{error}: stop the server first, or take a backup of it and verify that")
            }
            error => error.to_string(),
        })?,
        false => {
            verify_backup(path, progress).map_err(|error| format!("{}: {error}", path.display()))?
        }
    };
    line.finish(&format!("checked {}", human_bytes(report.bytes() as f64)));
    for Fault { file, detail } in &report.faults {
        line.println(&format!("damaged: {file}: {detail}"));
    }
    for Fault { file, detail } in &report.recorded {
        line.println(&format!("damaged when the backup was taken: {file}: {detail}"));
    }
    print(&report)?;
    Ok(if report.is_intact() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(report: &Report) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if io::stdout().is_terminal() {
        let mut table = Table::new(&["kind", "files", "size", "content"]);
        for kind in &report.kinds {
            table.push(vec![
                kind.kind.name().to_owned(),
                kind.files.to_string(),
                human_bytes(kind.bytes as f64),
                format!("{} {}", kind.items, kind.kind.items()),
            ]);
        }
        write!(out, "{}", table.render(1))?;
        let verdict = match report.faults.len() + report.recorded.len() {
            0 => "everything is intact".to_owned(),
            count => format!("{count} files are damaged or missing"),
        };
        return writeln!(out, "{verdict}");
    }
    let kinds = report.kinds.iter().map(|kind| {
        let (files, bytes, items) = (kind.files, kind.bytes, kind.items);
        let members = json!({"files": files, "bytes": bytes, (kind.kind.items()): items});
        (kind.kind.name().to_owned(), members)
    });
    let damaged = report.recorded.iter().chain(&report.faults);
    let damaged: Vec<_> = damaged.map(|fault| &fault.file).collect();
    let kinds: serde_json::Map<_, _> = kinds.collect();
    let summary = json!({"intact": report.is_intact(), "kinds": kinds, "damaged": damaged});
    writeln!(out, "{summary}")
}
