//! Opens a store: loads the catalog, then replays the WAL files that it does not cover.

mod salvage_state;
mod wal_replay;

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use self::wal_replay::WalReplay;
use super::backup::pins::remove_left_over;
use super::checkpoint::catalog::Catalog;
use super::checkpoint::catalog::files::StoredCatalog;
use super::checkpoint::sealed_wal::SealedWal;
use super::ids::run::IdRun;
use super::journal::JournalStart;
use super::options::DiskOptions;
use super::read::view::View;
use super::shared::Shared;
use super::state::StateRuns;
use super::state::run::StateRun;
use super::storage::file_header::{self, FileKind, HeaderFault, SPARSE_INDEX};
use super::storage::file_system::Access;
use super::storage::layout::Layout;
use crate::{Incident, OpenError};

/// More than the versions that one process can assign, before a crash, to commits that store nothing.
const VERSIONS_PER_PROCESS: u64 = 1 << 32;

/// A store that was opened.
pub(crate) struct Recovered {
    pub(crate) shared: Shared,
    pub(crate) catalog: StoredCatalog,
    /// The replayed WAL files, which have to be checkpointed.
    pub(crate) sealed: Vec<SealedWal>,
    pub(crate) start: JournalStart,
}

/// Opens the store in `options.folder`, or creates an empty one.
pub(crate) fn recover(options: &DiskOptions, layout: Layout) -> Result<Recovered, OpenError> {
    let mark = layout.restoring();
    match layout.fs().open(&mark, Access::Read) {
        Ok(_) => return Err(OpenError::Unfinished { path: layout.root().to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(&mark)(error)),
    }
    let found = StoredCatalog::load(&layout)?;
    layout.create_folders().map_err(failed(layout.root()))?;
    remove_left_over(&layout);
    let (mut stored, mut incidents) = match found {
        Some(found) => found,
        None => (create_catalog(&layout)?, Vec::new()),
    };
    // A killed process may have renamed the catalog or an edit without a sync. It has to be durable
    // before the files that it no longer needs are removed.
    for folder in [layout.root(), &layout.edits()] {
        layout.fs().sync_folder(folder).map_err(failed(folder))?;
    }
    if options.start_damaged {
        incidents.extend(salvage_state::salvage_state(&layout, &mut stored)?);
    }
    let catalog = &stored.catalog;
    let mut view = View::new(catalog.store_seed);
    apply_catalog(catalog, &mut view);
    let shared = Shared::new(layout, options.clone(), view);
    incidents.into_iter().for_each(|incident| shared.report(incident));
    report_quarantine(&shared)?;
    open_state_runs(&shared, catalog)?;
    open_id_runs(&shared, catalog)?;
    let mut replay = WalReplay::new(&shared, catalog);
    let mut sealed = Vec::new();
    let numbers = wal_numbers(&shared, catalog)?;
    for (index, number) in numbers.iter().enumerate() {
        let is_newest = index + 1 == numbers.len();
        if index > 0 && numbers[index - 1] + 1 != *number {
            // The missing file was reported, which explains the missing frames as well.
            replay.expect_gap();
        }
        sealed.push(replay.replay(*number, is_newest)?);
    }
    let (next_frame, last_version) = (replay.next_frame, replay.last_version);
    check_segments(&shared)?;
    let start = JournalStart {
        next_wal: numbers.last().copied().unwrap_or(0).max(catalog.checkpointed_wal) + 1,
        next_frame,
        // Commits that stored nothing were assigned versions as well, which no file records.
        last_version: last_version + VERSIONS_PER_PROCESS,
    };
    Ok(Recovered { shared, catalog: stored, sealed, start })
}

fn failed(path: &Path) -> impl Fn(io::Error) -> OpenError + '_ {
    |source| OpenError::Io { path: path.to_owned(), source }
}

/// The file is intact, but it is not the one that its name says.
fn wrong_number(path: &Path) -> OpenError {
    let detail = "its header belongs to a file of another number".to_owned();
    OpenError::Damaged { path: path.to_owned(), detail }
}

fn create_catalog(layout: &Layout) -> Result<StoredCatalog, OpenError> {
    let seed = uuid::Uuid::new_v4().as_u64_pair().0;
    StoredCatalog::create(layout, Catalog::new(seed)).map_err(failed(&layout.catalog()))
}

fn apply_catalog(catalog: &Catalog, view: &mut View) {
    for (name, row) in &catalog.topics {
        view.add_topic(name, row.ordinal);
        let topic = view.topic_mut(name);
        topic.first = row.first;
        topic.next = row.next;
        topic.newest_ids = row.newest_ids;
        topic.rule = row.rule;
        topic.trimmed_arrival = row.trimmed_arrival;
        topic.set_segments(row.segments.clone());
    }
}

fn open_state_runs(shared: &Shared, catalog: &Catalog) -> Result<(), OpenError> {
    let mut state = StateRuns::default();
    for info in &catalog.state_runs {
        let path = shared.layout.state_run(info.number);
        let run = StateRun::open(shared.layout.fs(), path.clone(), *info).map_err(failed(&path))?;
        match run.header_number() {
            Ok(number) if number != info.number => return Err(wrong_number(&path)),
            Ok(_) => {}
            Err(fault @ HeaderFault::Newer { .. }) => return Err(fault.into_open_error(&path)),
            Err(HeaderFault::Damaged(detail)) => shared.report_rebuilt(&path, detail),
        }
        state.runs.push(Arc::new(run));
    }
    shared.set_state_runs(state);
    Ok(())
}

fn open_id_runs(shared: &Shared, catalog: &Catalog) -> Result<(), OpenError> {
    for info in &catalog.id_runs {
        let path = shared.layout.id_run(info.number);
        let mut run = match IdRun::open(shared.layout.fs(), path.clone(), *info) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                shared.report_damaged_ids(&path, "missing");
                IdRun::missing(path, *info)
            }
            run => run.map_err(failed(&path))?,
        };
        match run.check_header() {
            Err(fault @ HeaderFault::Newer { .. }) => {
                return Err(fault.into_open_error(&run.path));
            }
            Err(HeaderFault::Damaged(detail)) => {
                shared.report_damaged_ids(&run.path, detail);
            }
            Ok(()) => {}
        }
        shared.ids_mut().index.runs.push(Arc::new(run));
    }
    Ok(())
}

/// Reports the WAL files that earlier starts put into quarantine: what they lost is still lost.
fn report_quarantine(shared: &Shared) -> Result<(), OpenError> {
    let folder = shared.layout.quarantine();
    for number in shared.layout.numbered(&folder, "wal").map_err(failed(&folder))? {
        let name = shared.layout.wal_file(number);
        let file = folder.join(name.file_name().unwrap_or_default());
        shared.report(Incident::InQuarantine { file });
    }
    Ok(())
}

/// Reports missing and truncated segments; their readable part is served. Rejects those of a newer
/// format version, before anything is appended to them.
fn check_segments(shared: &Shared) -> Result<(), OpenError> {
    let mut pack_lengths = HashMap::new();
    // Not those of the catalog: the files of trimmed segments are removed before a catalog says so.
    for (topic, view) in &shared.view().topics {
        for segment in &view.segments {
            let file = shared.layout.file_of(topic, segment);
            let known = segment.pack().and_then(|pack| pack_lengths.get(&pack).copied());
            let found = match known {
                Some(length) => length,
                None => length_of(shared, &file, segment.file_kind())?,
            };
            pack_lengths.extend(segment.pack().map(|pack| (pack, found)));
            if found < segment.end {
                shared.report(Incident::DamagedEvents {
                    topic: topic.clone(),
                    first: segment.first,
                    last: segment.last,
                    file,
                    detail: format!("truncated to {found} of {} bytes", segment.end),
                });
            }
            if segment.index_entries > 0 {
                let file = shared.layout.sparse_index(topic, segment.first);
                if length_of(shared, &file, SPARSE_INDEX)? == 0 {
                    shared.report_rebuilt(&file, "missing");
                }
            }
        }
    }
    Ok(())
}

/// Checks the header of a file and returns its length, or 0 if it is missing.
fn length_of(shared: &Shared, path: &Path, kind: FileKind) -> Result<u64, OpenError> {
    let file = match shared.layout.fs().open(path, Access::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        file => file.map_err(failed(path))?,
    };
    match file_header::read(&file, kind).map_err(failed(path))? {
        Err(fault @ HeaderFault::Newer { .. }) => return Err(fault.into_open_error(path)),
        Err(HeaderFault::Damaged(detail)) => shared.report_rebuilt(path, detail),
        Ok(_) => {}
    }
    file.len().map_err(failed(path))
}

/// Returns the numbers of the WAL files to replay, oldest first. Removes those that were
/// checkpointed, and reports missing ones.
fn wal_numbers(shared: &Shared, catalog: &Catalog) -> Result<Vec<u64>, OpenError> {
    let folder = shared.layout.wal();
    let mut numbers = shared.layout.numbered(&folder, "wal").map_err(failed(&folder))?;
    for old in numbers.iter().filter(|number| **number <= catalog.checkpointed_wal) {
        let path = shared.layout.wal_file(*old);
        shared.layout.fs().remove_file(&path).map_err(failed(&path))?;
    }
    numbers.retain(|number| *number > catalog.checkpointed_wal);
    let mut expected = catalog.checkpointed_wal + 1;
    for number in &numbers {
        for missing in expected..*number {
            let file = shared.layout.wal_file(missing);
            shared.report(Incident::DamagedLog { file, offset: 0, bytes: 0 });
        }
        expected = number + 1;
    }
    Ok(numbers)
}
