//! The cost of the disk engine, each figure next to a baseline measured in the same run.
//!
//! `make bench-engine` runs everything; `make bench-engine ONLY=append` runs one part.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark prints its results and panics on errors"
)]

mod append;
mod beside_a_publisher;
mod deleting;
mod events;
mod fsync;
mod large_store;
mod many_topics;
mod memory;
mod random_ids;
mod reopen;
mod report;
mod sequential_read;

use std::path::{Path, PathBuf};

use report::Report;

type Part = fn(&Path, &mut Report);

fn main() {
    if let Some(child) = std::env::var_os(reopen::CHILD) {
        return reopen::fill_and_wait(Path::new(&child));
    }
    if let Some(child) = std::env::var_os(memory::CHILD) {
        return memory::fill_and_report(Path::new(&child));
    }
    if let Some(child) = std::env::var_os(large_store::CHILD) {
        return large_store::run_as_child(Path::new(&child));
    }
    // Cargo passes `--bench`; all other arguments name the parts to run.
    let only: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let is_selected = |part: &str| only.is_empty() || only.iter().any(|word| word == part);
    let mut report = Report::default();
    let parts: [(&str, Part); 9] = [
        ("append", append::run),
        ("fsync", fsync::run),
        ("read", sequential_read::run),
        ("reopen", reopen::run),
        ("memory", memory::run),
        ("topics", many_topics::run),
        ("deleting", deleting::run),
        ("random-ids", random_ids::run),
        ("large", large_store::run),
    ];
    for (name, run) in parts.into_iter().filter(|(name, _)| is_selected(name)) {
        eprintln!("{name} …");
        let folder = scratch();
        run(folder.path(), &mut report);
    }
    report.print();
}

/// Creates a directory on the file system of the build: the default temporary directory may be in
/// memory.
fn scratch() -> tempfile::TempDir {
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    tempfile::tempdir_in(target).unwrap()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}
