//! Keeps the files of a catalog in existence while a backup reads them.
//!
//! A pin costs nothing when it is taken: no file is opened, linked or copied. Only when the checkpoint
//! thread removes a file that a pin needs, the file moves to `backup/` instead, which frees its name at
//! once and its space when the pin lets go of it. After a crash the next start empties that folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, io};

use parking_lot::Mutex;
use prombus_proto::Seq;

use crate::disk::checkpoint::catalog::Catalog;
use crate::disk::shared::Shared;
use crate::disk::storage::file_system::{Access, File, FileSystem};
use crate::disk::storage::layout::Layout;
use crate::disk::storage::store_file::StoreFile;

/// How many backups may run at a time.
pub(crate) const MAX_PINS: usize = 2;

/// All that exists at one moment, between two frames of the write-ahead log.
#[derive(Debug)]
pub(crate) struct Moment {
    pub(crate) catalog: Catalog,
    /// The WAL files that the catalog does not cover, and where their last frame ends.
    pub(crate) wal_ends: BTreeMap<u64, u64>,
}

impl Moment {
    /// Returns `true` if the file is part of it.
    fn has(&self, file: &StoreFile) -> bool {
        let segment = |topic, first: &Seq| {
            let segments = self.catalog.segments(topic);
            segments.binary_search_by_key(first, |segment| segment.first).is_ok()
        };
        match file {
            StoreFile::Wal(number) => self.wal_ends.contains_key(number),
            // Later ones have higher numbers.
            StoreFile::Pack(number) => *number < self.catalog.next_run,
            StoreFile::StateRun(number) => {
                self.catalog.state_runs.iter().any(|run| run.number == *number)
            }
            StoreFile::IdRun(number) => {
                self.catalog.id_runs.iter().any(|run| run.number == *number)
            }
            StoreFile::Segment(topic, first) | StoreFile::SparseIndex(topic, first) => {
                segment(topic, first)
            }
        }
    }
}

/// The pins of a store.
#[derive(Debug, Default)]
pub(crate) struct Pins(Mutex<PinsState>);

#[derive(Debug, Default)]
struct PinsState {
    pins: BTreeMap<u64, PinState>,
    next_pin: u64,
    next_held: u64,
    /// Set when the store is closed: another process may use the folder from then on.
    is_closed: bool,
}

#[derive(Debug)]
struct PinState {
    moment: Arc<Moment>,
    /// The last file that is no longer needed, and with it all before it.
    released: Option<StoreFile>,
    held: BTreeMap<StoreFile, Arc<HeldFile>>,
}

impl PinState {
    fn needs(&self, file: &StoreFile) -> bool {
        self.released.as_ref().is_none_or(|released| released < file) && self.moment.has(file)
    }
}

/// A file that was moved out of the way, and is removed once no pin needs it.
struct HeldFile {
    fs: FileSystem,
    path: PathBuf,
    bytes: u64,
}

impl fmt::Debug for HeldFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} bytes)", self.path.display(), self.bytes)
    }
}

impl Drop for HeldFile {
    fn drop(&mut self) {
        // What cannot be removed only takes space, until the next start.
        let _ = self.fs.remove_file(&self.path);
    }
}

/// Too many backups are running.
#[derive(Debug)]
pub(crate) struct TooManyPins;

impl Pins {
    /// Keeps the files of a moment until [`Pins::release_all`] is called for the number it returns.
    fn add(&self, moment: impl FnOnce() -> Moment) -> Result<(u64, Arc<Moment>), TooManyPins> {
        let mut state = self.0.lock();
        if state.pins.len() >= MAX_PINS {
            return Err(TooManyPins);
        }
        state.next_pin += 1;
        let (number, moment) = (state.next_pin, Arc::new(moment()));
        let pin = PinState { moment: Arc::clone(&moment), released: None, held: BTreeMap::new() };
        state.pins.insert(number, pin);
        Ok((number, moment))
    }

    /// Removes a file, or moves it to where the pins find it that need it.
    pub(crate) fn remove_file(&self, layout: &Layout, path: &Path) -> io::Result<()> {
        let fs = layout.fs();
        let mut state = self.0.lock();
        let file = StoreFile::at(layout, path);
        let needed_by = |file: &StoreFile| {
            let pins = state.pins.iter().filter(|(_, pin)| pin.needs(file));
            pins.map(|(number, _)| *number).collect::<Vec<_>>()
        };
        let pins = file.as_ref().map(needed_by).unwrap_or_default();
        let Some(file) = file.filter(|_| !pins.is_empty()) else {
            drop(state);
            return fs.remove_file(path);
        };
        let bytes = fs.open(path, Access::Read)?.len()?;
        let held = layout.held_file(state.next_held);
        // If that fails, the file stays where it is. The pins still find it, and it takes space until the
        // next start.
        fs.rename(path, &held)?;
        state.next_held += 1;
        let held = Arc::new(HeldFile { fs: fs.clone(), path: held, bytes });
        for number in pins {
            let pin = state.pins.get_mut(&number).expect("found above");
            pin.held.insert(file.clone(), Arc::clone(&held));
        }
        Ok(())
    }

    /// Opens a file of the pin's moment, wherever it is now.
    fn open(&self, layout: &Layout, pin: u64, file: &StoreFile) -> io::Result<File> {
        // Locked, so that the file does not move in between.
        let state = self.0.lock();
        let held = state.pins.get(&pin).and_then(|pin| pin.held.get(file));
        match held {
            _ if state.is_closed => Err(io::Error::other("the store is closed")),
            Some(held) => layout.fs().open(&held.path, Access::Read),
            None => layout.fs().open(&file.path(layout), Access::Read),
        }
    }

    /// Gives up `file` and all before it.
    fn release(&self, pin: u64, file: &StoreFile) {
        let mut state = self.0.lock();
        if let Some(pin) = state.pins.get_mut(&pin) {
            pin.held.retain(|held, _| held > file);
            pin.released = Some(file.clone());
        }
    }

    fn release_all(&self, pin: u64) {
        self.0.lock().pins.remove(&pin);
    }

    /// The size of the files that exist only for the pin.
    fn held_bytes(&self, pin: u64) -> u64 {
        let state = self.0.lock();
        state.pins.get(&pin).map_or(0, |pin| pin.held.values().map(|held| held.bytes).sum())
    }

    /// Ends all pins. Nothing in the folder is touched after this returns.
    pub(crate) fn close(&self) {
        let mut state = self.0.lock();
        state.is_closed = true;
        state.pins.values_mut().for_each(|pin| pin.held.clear());
    }
}

/// The files of a moment, which exist at least as long as this does.
pub(crate) struct Pin {
    pub(crate) shared: Arc<Shared>,
    pub(crate) moment: Arc<Moment>,
    number: u64,
}

impl Pin {
    /// Takes a pin. Only the checkpoint thread may do that: nobody else removes files or changes the
    /// catalog.
    pub(crate) fn take(shared: &Arc<Shared>, catalog: &Catalog) -> Result<Self, TooManyPins> {
        let moment = || {
            let mut wal_ends = shared.view().wal_ends.clone();
            wal_ends.retain(|number, _| *number > catalog.checkpointed_wal);
            Moment { catalog: catalog.clone(), wal_ends }
        };
        let (number, moment) = shared.pins.add(moment)?;
        Ok(Self { shared: Arc::clone(shared), moment, number })
    }

    /// Opens a file, wherever it is now.
    pub(crate) fn open(&self, file: &StoreFile) -> io::Result<File> {
        self.shared.pins.open(&self.shared.layout, self.number, file)
    }

    /// Gives up `file` and all before it.
    pub(crate) fn release(&self, file: &StoreFile) {
        self.shared.pins.release(self.number, file);
    }

    /// The size of the files that no longer belong to the store.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.shared.pins.held_bytes(self.number)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.shared.pins.release_all(self.number);
    }
}

/// Removes what a process held for its backups when it was killed.
pub(crate) fn remove_left_over(layout: &Layout) {
    for number in layout.numbered(&layout.held(), "held").unwrap_or_default() {
        // What cannot be removed only takes space.
        let _ = layout.fs().remove_file(&layout.held_file(number));
    }
}
