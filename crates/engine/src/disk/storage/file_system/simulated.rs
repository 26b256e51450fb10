//! A disk in memory that behaves as badly as a real one may.
//!
//! What was not synced may be lost when the power fails: any 512-byte sector of any write, any change
//! of a length, any created, renamed or removed name. Any call may fail. All of it is decided by a
//! seed, so that a failure can be repeated.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use prombus_proto::{RandomSource, SeededRandom};
use rustix::io::Errno;

use super::Access;

/// What a disk writes as a whole.
const SECTOR_BYTES: usize = 512;

/// Random decisions that a seed determines.
#[derive(Debug)]
pub(crate) struct Dice(SeededRandom);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SeededRandom::new(seed))
    }

    /// A number below `bound`.
    pub(crate) fn below(&self, bound: u64) -> u64 {
        self.0.next_u64() % bound
    }

    pub(crate) fn index(&self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).expect("below a `usize`")
    }

    pub(crate) fn pick<'a, T>(&self, choices: &'a [T]) -> &'a T {
        &choices[self.index(choices.len())]
    }

    /// `true` once in `odds` times.
    pub(crate) fn one_in(&self, odds: u64) -> bool {
        self.below(odds) == 0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    /// Needs a descriptor.
    Open,
    Read,
    Change,
}

/// The error that calls fail with, and how often.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faults {
    pub(crate) error: Errno,
    /// One call in this many fails.
    pub(crate) one_in: u64,
}

/// What becomes of unsynced changes when the power fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// Each sector and each name is lost or kept on its own.
    AnyPart,
    AllOrNothing,
}

#[derive(Debug)]
pub(crate) struct SimulatedDisk {
    state: Mutex<DiskState>,
}

#[derive(Debug)]
struct DiskState {
    dice: Dice,
    files: BTreeMap<FileNumber, FileState>,
    folders: BTreeMap<PathBuf, Folder>,
    next_file: u64,
    faults: Option<Faults>,
    /// The most bytes that all files have together.
    capacity: usize,
    /// Sectors that cannot be read.
    unreadable: BTreeSet<(FileNumber, usize)>,
    /// The file that the next sync of everything fails to write back, without saying so.
    fails_write_back: Option<FileNumber>,
    /// The power fails after so many calls.
    calls_left: Option<u64>,
    /// Counts the power failures. A file that was opened before one is gone.
    failures: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FileNumber(u64);

/// The content that programs see, and the content that survives.
#[derive(Debug, Default)]
struct FileState {
    content: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<ContentChange>,
    /// Whether it could not be written back, and nobody was told yet.
    failed: bool,
}

#[derive(Debug)]
enum ContentChange {
    Write { offset: usize, bytes: Vec<u8> },
    SetLength(usize),
}

#[derive(Debug, Default)]
struct Folder {
    names: BTreeMap<String, FileNumber>,
    durable: BTreeMap<String, FileNumber>,
    unsynced: Vec<NameChange>,
    /// Whether the folder above was synced after this one was created.
    is_durable: bool,
}

#[derive(Clone, Debug)]
enum NameChange {
    Add(String, FileNumber),
    Remove(String),
    Rename { from: String, to: String },
}

impl ContentChange {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Self::Write { offset, bytes } => write_into(content, *offset, bytes),
            Self::SetLength(length) => content.resize(*length, 0),
        }
    }
}

fn write_into(content: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[offset..end].copy_from_slice(bytes);
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, FileNumber>) {
        match self {
            Self::Add(name, file) => {
                names.insert(name.clone(), *file);
            }
            Self::Remove(name) => {
                names.remove(name);
            }
            Self::Rename { from, to } => {
                if let Some(file) = names.remove(from) {
                    names.insert(to.clone(), file);
                }
            }
        }
    }
}

impl FileState {
    fn change(&mut self, change: ContentChange) {
        change.apply(&mut self.content);
        self.unsynced.push(change);
    }

    fn sync(&mut self) {
        self.durable.clone_from(&self.content);
        self.unsynced.clear();
    }

    /// Fails once if it could not be written back before.
    fn sync_or_tell(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.failed) {
            return Err(Errno::IO.into());
        }
        self.sync();
        Ok(())
    }

    /// Drops what was not synced from the durable content for good, as if writing it back had failed.
    fn fail_write_back(&mut self) {
        self.unsynced.clear();
        self.failed = true;
    }

    /// Keeps what was synced, and of the rest what `keeps` says, sector by sector.
    fn lose_power(&mut self, mut keeps: impl FnMut() -> bool) {
        let mut content = std::mem::take(&mut self.durable);
        for change in self.unsynced.drain(..) {
            match change {
                ContentChange::Write { offset, bytes } => {
                    let mut at = 0;
                    while at < bytes.len() {
                        let to_boundary = SECTOR_BYTES - (offset + at) % SECTOR_BYTES;
                        let end = (at + to_boundary).min(bytes.len());
                        if keeps() {
                            write_into(&mut content, offset + at, &bytes[at..end]);
                        }
                        at = end;
                    }
                }
                ContentChange::SetLength(length) if keeps() => content.resize(length, 0),
                ContentChange::SetLength(_) => {}
            }
        }
        self.content.clone_from(&content);
        self.durable = content;
    }
}

impl Folder {
    fn change(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.unsynced.push(change);
    }

    fn sync(&mut self) {
        self.durable.clone_from(&self.names);
        self.unsynced.clear();
    }

    fn lose_power(&mut self, mut keeps: impl FnMut() -> bool) {
        let mut names = std::mem::take(&mut self.durable);
        self.unsynced.drain(..).filter(|_| keeps()).for_each(|change| change.apply(&mut names));
        self.names.clone_from(&names);
        self.durable = names;
    }
}

impl DiskState {
    /// Counts a call, and fails it if the seed says so.
    fn call(&mut self, kind: Call) -> io::Result<()> {
        if let Some(left) = &mut self.calls_left {
            if *left == 0 {
                return Err(Errno::IO.into());
            }
            *left -= 1;
        }
        match self.faults {
            // An error while reading is damage, which the simulation leaves to other tests.
            Some(Faults { error: Errno::IO, .. }) if kind == Call::Read => Ok(()),
            Some(Faults { error: Errno::MFILE, .. }) if kind != Call::Open => Ok(()),
            Some(faults) if self.dice.one_in(faults.one_in) => Err(faults.error.into()),
            _ => Ok(()),
        }
    }

    fn used(&self) -> usize {
        let named: BTreeSet<_> =
            self.folders.values().flat_map(|folder| folder.names.values()).collect();
        named.iter().filter_map(|number| Some(self.files.get(number)?.content.len())).sum()
    }

    /// Fails if the file `number` cannot grow to `length`.
    fn check_room(&self, number: FileNumber, length: usize) -> io::Result<()> {
        let before = self.files.get(&number).map_or(0, |file| file.content.len());
        let grows_by = length.saturating_sub(before);
        let is_full = grows_by > 0 && self.capacity.saturating_sub(self.used()) < grows_by;
        if is_full { Err(Errno::NOSPC.into()) } else { Ok(()) }
    }

    fn folder_of(&mut self, path: &Path) -> io::Result<(&mut Folder, String)> {
        let name = path.file_name().and_then(|name| name.to_str()).ok_or(Errno::INVAL)?;
        let folder = path.parent().and_then(|folder| self.folders.get_mut(folder));
        Ok((folder.ok_or(Errno::NOENT)?, name.to_owned()))
    }

    fn file_at(&mut self, path: &Path) -> io::Result<FileNumber> {
        let (folder, name) = self.folder_of(path)?;
        Ok(*folder.names.get(&name).ok_or(Errno::NOENT)?)
    }
}

impl SimulatedDisk {
    pub(crate) fn new(seed: u64) -> Arc<Self> {
        let state = DiskState {
            dice: Dice::new(seed),
            files: BTreeMap::new(),
            folders: BTreeMap::new(),
            next_file: 1,
            faults: None,
            capacity: usize::MAX,
            unreadable: BTreeSet::new(),
            fails_write_back: None,
            calls_left: None,
            failures: 0,
        };
        Arc::new(Self { state: Mutex::new(state) })
    }

    pub(crate) fn set_faults(&self, faults: Option<Faults>) {
        self.state.lock().faults = faults;
    }

    pub(crate) fn set_capacity(&self, bytes: usize) {
        self.state.lock().capacity = bytes;
    }

    pub(crate) fn used(&self) -> usize {
        self.state.lock().used()
    }

    /// All files.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        let state = self.state.lock();
        let names = |(folder, inner): (&PathBuf, &Folder)| -> Vec<PathBuf> {
            inner.names.keys().map(|name| folder.join(name)).collect()
        };
        state.folders.iter().flat_map(names).collect()
    }

    /// Makes the sector at `offset` of a file unreadable.
    pub(crate) fn damage_sector(&self, path: &Path, offset: usize) {
        let mut state = self.state.lock();
        let number = state.file_at(path).expect("the file exists");
        state.unreadable.insert((number, offset / SECTOR_BYTES));
    }

    /// Makes the next sync of everything skip a file, as if somebody else had been told of the error.
    pub(crate) fn fail_write_back(&self, path: &Path) {
        let mut state = self.state.lock();
        state.fails_write_back = Some(state.file_at(path).expect("the file exists"));
    }

    /// Flips a bit of a file.
    pub(crate) fn flip_bit(&self, path: &Path, offset: usize) {
        let mut state = self.state.lock();
        let number = state.file_at(path).expect("the file exists");
        let file = state.files.get_mut(&number).expect("a name has a file");
        file.content[offset] ^= 1;
        file.sync();
    }

    /// Adds a file that no store knows.
    pub(crate) fn add_file(&self, path: &Path) {
        let mut state = self.state.lock();
        let number = FileNumber(state.next_file);
        state.next_file += 1;
        state.files.insert(number, FileState::default());
        let (folder, name) = state.folder_of(path).expect("the folder exists");
        folder.change(NameChange::Add(name, number));
        folder.sync();
    }

    pub(crate) fn end_faults(&self) {
        let mut state = self.state.lock();
        (state.faults, state.calls_left) = (None, None);
    }

    /// Runs `work` as if nothing could fail.
    pub(crate) fn without_faults(&self, work: impl FnOnce()) {
        let (faults, calls_left) = {
            let mut state = self.state.lock();
            (state.faults.take(), state.calls_left.take())
        };
        work();
        let mut state = self.state.lock();
        (state.faults, state.calls_left) = (faults, calls_left);
    }

    /// Lets the power fail after `calls` further calls: every call fails from then on.
    pub(crate) fn fail_power_after(&self, calls: u64) {
        self.state.lock().calls_left = Some(calls);
    }

    pub(crate) fn has_power(&self) -> bool {
        self.state.lock().calls_left != Some(0)
    }

    /// Turns the power off and on. What was not synced is lost, kept or torn.
    pub(crate) fn restart(&self, loss: Loss) {
        let state = &mut *self.state.lock();
        let keeps_in_four = match loss {
            Loss::AnyPart => state.dice.below(5),
            Loss::AllOrNothing => state.dice.below(2) * 4,
        };
        let dice = &state.dice;
        let mut keeps = || dice.below(4) < keeps_in_four;
        state.files.values_mut().for_each(|file| file.lose_power(&mut keeps));
        state.folders.values_mut().for_each(|folder| folder.lose_power(&mut keeps));
        let lost: Vec<_> = state
            .folders
            .iter()
            .filter(|(path, folder)| path.parent().is_some() && !folder.is_durable && !keeps())
            .map(|(path, _)| path.clone())
            .collect();
        state.folders.retain(|path, _| !lost.iter().any(|lost| path.starts_with(lost)));
        state.folders.values_mut().for_each(|folder| folder.is_durable = true);
        let named: Vec<_> =
            state.folders.values().flat_map(|folder| folder.names.values().copied()).collect();
        state.files.retain(|number, _| named.contains(number));
        state.calls_left = None;
        state.faults = None;
        state.failures += 1;
    }

    pub(super) fn open(self: &Arc<Self>, path: &Path, access: Access) -> io::Result<SimulatedFile> {
        let mut state = self.state.lock();
        state.call(Call::Open)?;
        let found = match state.file_at(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            found => found.ok(),
        };
        let number = match (found, access) {
            (Some(number), Access::CreateEmpty) => {
                let file = state.files.get_mut(&number).expect("a name has a file");
                file.change(ContentChange::SetLength(0));
                number
            }
            (Some(number), _) => number,
            (None, Access::Read | Access::Write) => return Err(Errno::NOENT.into()),
            (None, Access::CreateOrWrite | Access::CreateEmpty) => {
                let number = FileNumber(state.next_file);
                let (folder, name) = state.folder_of(path)?;
                folder.change(NameChange::Add(name, number));
                state.next_file += 1;
                state.files.insert(number, FileState::default());
                number
            }
        };
        Ok(SimulatedFile { disk: Arc::clone(self), number, opened_after: state.failures })
    }

    pub(super) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.call(Call::Change)?;
        let number = state.file_at(from)?;
        let is_same_folder = from.parent() == to.parent();
        let (_, to_name) = state.folder_of(to)?;
        let (folder, from) = state.folder_of(from)?;
        if is_same_folder {
            folder.change(NameChange::Rename { from, to: to_name });
            return Ok(());
        }
        // After a power failure it may have either name, both or none.
        folder.change(NameChange::Remove(from));
        state.folder_of(to)?.0.change(NameChange::Add(to_name, number));
        Ok(())
    }

    pub(super) fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.call(Call::Change)?;
        state.file_at(path)?;
        let (folder, name) = state.folder_of(path)?;
        folder.change(NameChange::Remove(name));
        Ok(())
    }

    pub(super) fn hard_link(&self, original: &Path, link: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.call(Call::Change)?;
        let number = state.file_at(original)?;
        let (folder, name) = state.folder_of(link)?;
        if folder.names.contains_key(&name) {
            return Err(Errno::EXIST.into());
        }
        folder.change(NameChange::Add(name, number));
        Ok(())
    }

    pub(super) fn create_folder(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.call(Call::Change)?;
        for folder in path.ancestors().filter(|folder| !folder.as_os_str().is_empty()) {
            state.folders.entry(folder.to_owned()).or_default();
        }
        Ok(())
    }

    /// A folder that is removed may be back after a crash, and empty.
    pub(super) fn remove_folder(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.call(Call::Change)?;
        let folder = state.folders.get(path).ok_or(Errno::NOENT)?;
        if !folder.names.is_empty() {
            return Err(Errno::NOTEMPTY.into());
        }
        state.folders.remove(path);
        Ok(())
    }

    pub(super) fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let mut state = self.state.lock();
        state.call(Call::Open)?;
        let found = state.folders.get(folder).ok_or(Errno::NOENT)?;
        let files = found.names.keys().cloned();
        let folders = state.folders.keys().filter(|path| path.parent() == Some(folder));
        let folders = folders.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()));
        Ok(files.chain(folders).collect())
    }

    pub(super) fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.state.lock().call(Call::Open)?;
        self.sync_open_folder(folder)
    }

    pub(super) fn sync_open_folder(&self, folder: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.call(Call::Change)?;
        state.folders.get_mut(folder).ok_or(Errno::NOENT)?.sync();
        for (path, inner) in &mut state.folders {
            inner.is_durable |= path.parent() == Some(folder);
        }
        Ok(())
    }

    pub(super) fn sync(&self, path: &Path) -> io::Result<()> {
        if self.state.lock().folders.contains_key(path) {
            return self.sync_folder(path);
        }
        let mut state = self.state.lock();
        state.call(Call::Open)?;
        let number = state.file_at(path)?;
        state.files.get_mut(&number).expect("a name has a file").sync_or_tell()
    }

    pub(super) fn sync_everything(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        state.call(Call::Open)?;
        if let Some(number) = state.fails_write_back.take() {
            state.files.get_mut(&number).expect("a name has a file").fail_write_back();
        }
        state.files.values_mut().filter(|file| !file.failed).for_each(FileState::sync);
        for folder in state.folders.values_mut() {
            folder.sync();
            folder.is_durable = true;
        }
        Ok(())
    }
}

/// An open file of a [`SimulatedDisk`].
#[derive(Debug)]
pub(crate) struct SimulatedFile {
    disk: Arc<SimulatedDisk>,
    number: FileNumber,
    opened_after: u64,
}

impl SimulatedFile {
    fn with<T>(&self, call: Call, work: impl FnOnce(&mut FileState) -> T) -> io::Result<T> {
        let mut state = self.disk.state.lock();
        state.call(call)?;
        if state.failures != self.opened_after {
            return Err(Errno::IO.into());
        }
        Ok(work(state.files.get_mut(&self.number).ok_or(Errno::IO)?))
    }

    pub(super) fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        let readable = self.readable_bytes(offset, buffer.len())?;
        self.with(Call::Read, |file| {
            let available = &file.content[offset.min(file.content.len())..];
            let bytes = available.len().min(buffer.len()).min(readable);
            buffer[..bytes].copy_from_slice(&available[..bytes]);
            bytes
        })
    }

    /// How many of `bytes` bytes at `offset` come before an unreadable sector.
    fn readable_bytes(&self, offset: usize, bytes: usize) -> io::Result<usize> {
        let state = self.disk.state.lock();
        let sectors = (self.number, offset / SECTOR_BYTES)..=(self.number, usize::MAX);
        match state.unreadable.range(sectors).next() {
            Some((_, sector)) if sector * SECTOR_BYTES <= offset => Err(Errno::IO.into()),
            Some((_, sector)) => Ok(bytes.min(sector * SECTOR_BYTES - offset)),
            None => Ok(bytes),
        }
    }

    pub(super) fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < buffer.len() {
            match self.read_at(&mut buffer[done..], offset + done as u64)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => done += read,
            }
        }
        Ok(())
    }

    pub(super) fn append_to(
        &self,
        buffer: &mut Vec<u8>,
        offset: u64,
        bytes: usize,
    ) -> Result<usize, Errno> {
        let mut read = vec![0; bytes - buffer.len()];
        let found = self
            .read_at(&mut read, offset)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        buffer.extend_from_slice(&read[..found]);
        Ok(found)
    }

    /// Writes all, or on a full disk a part of it.
    pub(super) fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        self.disk.state.lock().check_room(self.number, offset + bytes.len())?;
        let written = self.with(Call::Change, |file| {
            file.change(ContentChange::Write { offset, bytes: bytes.into() });
        });
        if written.is_err() && self.disk.has_power() && !bytes.is_empty() {
            let mut state = self.disk.state.lock();
            let part = bytes[..state.dice.index(bytes.len())].to_vec();
            if let Some(file) = state.files.get_mut(&self.number) {
                file.change(ContentChange::Write { offset, bytes: part });
            }
        }
        written
    }

    pub(super) fn preallocate(&self, bytes: u64) -> io::Result<bool> {
        let bytes = usize::try_from(bytes).map_err(io::Error::other)?;
        self.disk.state.lock().check_room(self.number, bytes)?;
        self.with(Call::Change, |file| {
            if file.content.len() < bytes {
                file.change(ContentChange::SetLength(bytes));
            }
            true
        })
    }

    pub(super) fn set_len(&self, bytes: u64) -> io::Result<()> {
        let bytes = usize::try_from(bytes).map_err(io::Error::other)?;
        self.with(Call::Change, |file| file.change(ContentChange::SetLength(bytes)))
    }

    pub(super) fn len(&self) -> io::Result<u64> {
        self.with(Call::Read, |file| file.content.len() as u64)
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.with(Call::Change, FileState::sync_or_tell)?
    }
}
