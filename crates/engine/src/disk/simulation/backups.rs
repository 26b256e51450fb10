//! Backups while everything else goes on and anything may fail, and restores that are interrupted.

use std::path::Path;
use std::sync::Arc;

use super::model::Model;
use super::{OpenStore, Simulation};
use crate::OpenError;
use crate::disk::backup::restore::restore_into;
use crate::disk::backup::source::BackupSource;
use crate::disk::backup::{BackupError, OnDamage};
use crate::disk::checkpoint::CheckpointTask;
use crate::disk::storage::file_system::FileSystem;
use crate::disk::storage::file_system::simulated::{Loss, SimulatedDisk};
use crate::disk::storage::layout::Layout;
use crate::disk::verify::archive::{OnlyCheck, read_archive};
use crate::disk::verify::report::Report;

/// A backup, and what has to be in it.
pub(super) struct RunningBackup {
    source: BackupSource,
    expected: Model,
}

/// What a step may do at most, so that much happens while a backup runs.
const MOST_STEPS: u64 = 12;

impl Simulation {
    /// Starts a backup, or continues the one that runs. Restores it when it is complete.
    pub(super) fn go_on_with_backup(&mut self) {
        let Some(mut backup) = self.backup.take().or_else(|| self.start_backup()) else { return };
        for _ in 0..self.dice.below(MOST_STEPS) {
            match backup.source.advance() {
                Ok(false) => {}
                Ok(true) => return self.check_backup(backup),
                // The simulation damages nothing. Without power nothing can be read.
                Err(BackupError::Damaged(fault)) if self.disk.has_power() => {
                    panic!("a backup found {fault}")
                }
                // It can be tried again.
                Err(_) => return,
            }
        }
        self.backup = Some(backup);
    }

    fn start_backup(&mut self) -> Option<RunningBackup> {
        let expected = self.model.clone();
        let store = self.store();
        let (reply, mut pinned) = tokio::sync::oneshot::channel();
        store.tasks.send(CheckpointTask::Pin(reply)).expect("the checkpointer is there");
        store.checkpointer.work();
        let pin = pinned.try_recv().ok()?.expect("one backup at a time");
        let source = BackupSource::new(pin, OnDamage::Stop).ok()?;
        Some(RunningBackup { source, expected })
    }

    /// Restores a backup on another disk, and compares what is there with what was there.
    fn check_backup(&mut self, mut backup: RunningBackup) {
        let bytes = backup.source.take();
        let report = read_archive(&bytes[..], &mut OnlyCheck, &mut |_, _| {});
        let report = report.unwrap_or_else(|error| panic!("the backup: {error}"));
        assert!(report.is_intact(), "{:?}", report.faults);
        let disk = SimulatedDisk::new(self.dice.below(u64::MAX));
        restore_on(&disk, &bytes, &report).expect("the disk has no faults");
        disk.restart(Loss::AnyPart);
        let mut restored = self.another(disk);
        let store = restored.open().unwrap_or_else(|error| panic!("restored: {error}"));
        assert_eq!(store.shared.incidents(), []);
        backup.expected.check(&store.shared);
        // It is a store like any other.
        restored.model = backup.expected;
        restored.model.killed();
        restored.store = Some(store);
        (0..5).for_each(|_| restored.commit());
        restored.work();
        restored.kill();
    }

    /// The same simulation on another disk.
    fn another(&self, disk: Arc<SimulatedDisk>) -> Self {
        let mut other = Self::new(self.dice.below(u64::MAX));
        other.disk = disk;
        other.packing = self.packing;
        other
    }

    /// The process is gone, and with it all that would have cleaned up.
    pub(super) fn forget_backup(&mut self) {
        std::mem::forget(self.backup.take());
    }

    pub(super) fn check_nothing_is_held(&self) {
        let held = self.disk.paths().into_iter().find(|path| path.starts_with("/store/backup"));
        assert_eq!(held, None);
    }
}

fn restore_on(
    disk: &Arc<SimulatedDisk>,
    backup: &[u8],
    report: &Report,
) -> Result<Report, crate::disk::backup::RestoreError> {
    let fs = FileSystem::Simulated(Arc::clone(disk));
    fs.create_folder(Path::new("/store"))
        .map_err(|source| OpenError::Io { path: "/store".into(), source })?;
    let _ = fs.sync_folder(Path::new("/"));
    let layout = Layout::on(fs, "/store".into());
    restore_into(&layout, backup, report, &mut |_, _, _| {})
}

/// A store with all kinds of files, and a backup of it.
fn backed_up(seed: u64) -> (Simulation, RunningBackup, Vec<u8>) {
    let mut simulation = Simulation::new(seed);
    simulation.reopen();
    for _ in 0..120 {
        simulation.commit();
        if simulation.dice.one_in(4) {
            simulation.work();
        }
    }
    let mut backup = simulation.start_backup().expect("nothing fails");
    while !backup.source.advance().expect("nothing fails") {}
    let bytes = backup.source.take();
    (simulation, backup, bytes)
}

/// What a folder is after a restore was interrupted.
enum Interrupted {
    /// It does not open.
    Marked,
    /// Nothing was restored.
    Empty,
    Complete,
}

fn state_of(simulation: &Simulation, expected: &Model) -> Interrupted {
    match simulation.open() {
        Err(OpenError::Unfinished { .. }) => Interrupted::Marked,
        Err(error) => panic!("{error}"),
        Ok(OpenStore { shared, .. }) => {
            if shared.view().topics.is_empty() {
                return Interrupted::Empty;
            }
            expected.check(&shared);
            Interrupted::Complete
        }
    }
}

/// Whenever the power fails, the folder does not open or is complete, and restoring again succeeds.
#[test]
fn an_interrupted_restore_leaves_no_half_store() {
    for seed in 0..6 {
        let (simulation, backup, bytes) = backed_up(seed);
        let report = read_archive(&bytes[..], &mut OnlyCheck, &mut |_, _| {}).expect("intact");
        let (mut marked, mut complete, mut calls) = (0, 0, 1);
        loop {
            let disk = SimulatedDisk::new(seed * 1000 + calls);
            disk.fail_power_after(calls);
            let is_done = restore_on(&disk, &bytes, &report).is_ok();
            disk.restart(Loss::AnyPart);
            let restored = simulation.another(Arc::clone(&disk));
            match state_of(&restored, &backup.expected) {
                Interrupted::Marked => {
                    assert!(!is_done);
                    marked += 1;
                    restore_on(&disk, &bytes, &report).expect("the power is back");
                    let again = state_of(&restored, &backup.expected);
                    assert!(matches!(again, Interrupted::Complete));
                }
                Interrupted::Empty => assert!(!is_done),
                Interrupted::Complete => complete += 1,
            }
            if is_done {
                break;
            }
            calls += 1 + calls / 16;
        }
        assert!(marked > 5 && complete > 0, "{marked} marked, {complete} complete");
    }
}

/// A backup of a store with a damaged file names it, and is no backup.
#[test]
fn damage_is_named_and_not_copied_quietly() {
    let (mut simulation, backup, _) = backed_up(1);
    drop(backup);
    simulation.work();
    // In a pack there may be segments that no topic has any more, but the header is in use.
    for (extension, offset) in
        [("seg", 50), ("idx", 50), ("pack", 20), ("kv", 50), ("ids", 50), ("wal", 50)]
    {
        let files = simulation.disk.paths();
        let is_kind = |path: &&std::path::PathBuf| path.extension().is_some_and(|e| e == extension);
        let Some(file) = files.iter().find(is_kind) else { continue };
        simulation.disk.flip_bit(file, offset);
        let mut backup = simulation.start_backup().expect("a flipped bit refuses nothing");
        let found = loop {
            match backup.source.advance() {
                Ok(false) => {}
                Ok(true) => panic!("{} was copied", file.display()),
                Err(error) => break error,
            }
        };
        let name = file.strip_prefix("/store").expect("in the store").display().to_string();
        match found {
            BackupError::Damaged(fault) => assert_eq!(fault.file, name),
            error => panic!("{error}"),
        }
        simulation.disk.flip_bit(file, offset);
    }
}
