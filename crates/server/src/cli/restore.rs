//! `prombus restore`.

use std::error::Error;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use prombus_engine::disk::backup::{OnDamage, RestoreError, RestoreStage, restore};
use serde_json::json;

use super::human_bytes::human_bytes;
use super::status_line::StatusLine;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  prombus restore prombus-2026-01-31.backup --data ./prombus-data
  prombus serve --data ./prombus-data

Checks the whole backup first, then writes the store, then checks every file of it. No server opens the folder
before that is done. After an interruption, run the same command again: it starts over.")]
pub(crate) struct RestoreArguments {
    /// Backup to restore, a file that prombus backup wrote
    file: PathBuf,
    /// Folder of the new store, which must be empty or not exist
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Restore what is left of damaged files, and name them, instead of failing
    #[arg(long)]
    include_damaged: bool,
}

pub(crate) fn run(arguments: &RestoreArguments) -> Result<(), Box<dyn Error>> {
    let RestoreArguments { file, data, include_damaged } = arguments;
    if file.as_os_str() == "-" {
        return Err("a backup is read twice: store it in a file first".into());
    }
    let on_damage = if *include_damaged { OnDamage::Include } else { OnDamage::Stop };
    let mut line = StatusLine::new(false);
    let restored = restore(file, data, on_damage, &mut |stage, done, total| {
        line.update(|_| {
            let percent = done.saturating_mul(100) / total.max(1);
            let (done, total) = (human_bytes(done as f64), human_bytes(total as f64));
            format!("{}: {done} of {total}, {percent}%", stage_name(stage))
        });
    });
    let report = restored.map_err(|error| match error {
        RestoreError::Archive(error) => format!("{}: {error}", file.display()),
        RestoreError::Damaged(faults) => {
            faults.iter().for_each(|fault| line.println(&format!("damaged: {fault}")));
            let count = faults.len();
            format!(
                "{}: {count} files in it are damaged; restore an older backup, or what is left with \
                 --include-damaged",
                file.display()
            )
        }
        error => error.to_string(),
    })?;
    line.finish("restored");
    for fault in report.recorded.iter().chain(&report.faults) {
        line.println(&format!("damaged, restored as it was: {fault}"));
    }
    let mut out = io::stdout().lock();
    let files: u64 = report.kinds.iter().map(|kind| kind.files).sum();
    if io::stdout().is_terminal() {
        let size = human_bytes(report.bytes() as f64);
        let data = data.display();
        writeln!(out, "restored and verified {files} files, {size}: prombus serve --data {data}")?;
    } else {
        let damaged = report.recorded.len() + report.faults.len();
        let summary = json!({
            "data": data.display().to_string(), "files": files, "bytes": report.bytes(),
            "damaged": damaged,
        });
        writeln!(out, "{summary}")?;
    }
    Ok(())
}

const fn stage_name(stage: RestoreStage) -> &'static str {
    match stage {
        RestoreStage::CheckingBackup => "checking the backup",
        RestoreStage::Writing => "writing the store",
        RestoreStage::CheckingStore => "checking the store",
    }
}
