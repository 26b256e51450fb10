//! Turns a backup into a store.
//!
//! The folder is marked before anything is written to it, and the mark is removed after everything is
//! durable and checked. A folder with the mark does not open; restoring into it again starts over. The
//! catalog comes last, so that no version of Prombus takes the folder for a store before that.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::archive::reader::{ArchiveError, ArchiveReader};
use crate::OpenError;
use crate::disk::checkpoint::catalog::Catalog;
use crate::disk::checkpoint::catalog::files::StoredCatalog;
use crate::disk::storage::file_system::{Access, File};
use crate::disk::storage::layout::Layout;
use crate::disk::storage::lock::StoreLock;
use crate::disk::storage::store_file::StoreFile;
use crate::disk::verify::archive::{OnlyCheck, Receiver, read_archive};
use crate::disk::verify::report::{Fault, Report};
use crate::disk::verify::store::{VerifyError, verify_locked};

use super::OnDamage;

/// Why a backup was not restored. The folder does not open as a store then.
#[derive(Debug, Error)]
pub enum RestoreError {
    /// The backup cannot be used.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// Files in the backup are damaged.
    #[error("{} files in the backup are damaged; the first one is {}", .0.len(), .0[0])]
    Damaged(Vec<Fault>),
    /// The folder is not empty.
    #[error("{0} is not empty: restore into a new or empty folder")]
    NotEmpty(PathBuf),
    /// There is no room for it.
    #[error("the backup needs {needed} bytes, but {path} has room for {available}")]
    NoRoom {
        /// The folder.
        path: PathBuf,
        /// The size of the files in the backup.
        needed: u64,
        /// What is free.
        available: u64,
    },
    /// What was restored differs from the backup.
    #[error("{0} was not stored as it was written: the disk is not reliable")]
    Unreliable(Fault),
    /// The folder is in use or cannot be written.
    #[error(transparent)]
    Open(#[from] OpenError),
}

impl From<VerifyError> for RestoreError {
    fn from(error: VerifyError) -> Self {
        match error {
            VerifyError::Open(error) => Self::Open(error),
            VerifyError::NotAStore(path) => {
                let detail = "it is gone".to_owned();
                Self::Unreliable(Fault { file: path, detail })
            }
        }
    }
}

/// The parts of a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoreStage {
    /// The backup is being checked. Nothing is written yet.
    CheckingBackup,
    /// Its files are being written.
    Writing,
    /// What was written is being checked.
    CheckingStore,
}

/// Restores the backup `archive` into `folder`, which is created if it does not exist. Checks the backup
/// before, and the store afterwards. `progress` gets the bytes so far, and in total.
///
/// # Errors
///
/// If the backup or the folder cannot be used. The folder then does not open as a store; the same call can
/// be repeated.
pub fn restore(
    archive: &Path,
    folder: &Path,
    on_damage: OnDamage,
    progress: &mut dyn FnMut(RestoreStage, u64, u64),
) -> Result<Report, RestoreError> {
    let open = || fs::File::open(archive).map(|file| io::BufReader::with_capacity(1 << 18, file));
    let layout = Layout::new(folder.to_owned());
    check_folder(&layout)?;
    let header = ArchiveReader::open(open().map_err(ArchiveError::Io)?)?.header;
    check_room(folder, header.bytes)?;
    let check = &mut |done, total| progress(RestoreStage::CheckingBackup, done, total);
    let report = read_archive(open().map_err(ArchiveError::Io)?, &mut OnlyCheck, check)?;
    let damaged: Vec<_> = report.recorded.iter().chain(&report.faults).cloned().collect();
    if !damaged.is_empty() && on_damage == OnDamage::Stop {
        return Err(RestoreError::Damaged(damaged));
    }
    let lock = StoreLock::acquire(&layout)?;
    // Somebody else may have been faster.
    let restored = check_folder(&layout).and_then(|()| {
        let source = open().map_err(ArchiveError::Io)?;
        restore_into(&layout, source, &report, progress)
    });
    lock.release();
    restored
}

/// Writes the files of a backup, which was checked, into a folder that is locked and empty or marked.
pub(crate) fn restore_into(
    layout: &Layout,
    source: impl Read,
    checked: &Report,
    progress: &mut dyn FnMut(RestoreStage, u64, u64),
) -> Result<Report, RestoreError> {
    let fs = layout.fs();
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| RestoreError::Open(OpenError::Io { path, source })
    };
    let (mark, root) = (layout.restoring(), layout.root());
    // Open from the start on: it learns of files that cannot be written back.
    let folder = fs.open_folder(root).map_err(failed(root))?;
    fs.write(&mark, b"").map_err(failed(&mark))?;
    fs.sync_folder(root).map_err(failed(root))?;
    remove_unfinished(layout)?;
    layout.create_folders().map_err(failed(root))?;
    let mut writer = Writer { layout, catalog: None, topic: None, current: None };
    let write = &mut |done, total| progress(RestoreStage::Writing, done, total);
    read_archive(source, &mut writer, write)?;
    let catalog = writer
        .catalog
        .take()
        .ok_or_else(|| ArchiveError::Invalid("it has no catalog".to_owned()))?;
    folder.sync_filesystem().map_err(failed(root))?;
    let stored = StoredCatalog::create(layout, catalog);
    stored.map_err(failed(&layout.catalog()))?;
    let check = &mut |done, total| progress(RestoreStage::CheckingStore, done, total);
    let mut report = verify_locked(layout, check)?;
    let known = |fault: &Fault| {
        checked.recorded.iter().chain(&checked.faults).any(|known| known.file == fault.file)
    };
    if let Some(fault) = report.faults.iter().find(|fault| !known(fault)) {
        return Err(RestoreError::Unreliable(fault.clone()));
    }
    report.faults.retain(|fault| !checked.recorded.iter().any(|known| known.file == fault.file));
    report.recorded = checked.recorded.clone();
    fs.remove_file(&mark).map_err(failed(&mark))?;
    fs.sync_folder(root).map_err(failed(root))?;
    Ok(report)
}

/// Returns an error if the folder has anything but what an unfinished restore left.
fn check_folder(layout: &Layout) -> Result<(), RestoreError> {
    let root = layout.root();
    if layout.restoring().exists() {
        return Ok(());
    }
    let names = match layout.fs().list(root) {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(OpenError::Io { path: root.to_owned(), source }.into()),
    };
    // Locking the folder creates it.
    match names.iter().all(|name| name == "LOCK") {
        true => Ok(()),
        false => Err(RestoreError::NotEmpty(root.to_owned())),
    }
}

fn check_room(folder: &Path, needed: u64) -> Result<(), RestoreError> {
    let existing = folder.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("."));
    let existing = if existing.as_os_str().is_empty() { Path::new(".") } else { existing };
    // If the filesystem does not tell, writing shows.
    let Ok(found) = rustix::fs::statvfs(existing) else { return Ok(()) };
    let available = found.f_bavail.saturating_mul(found.f_frsize);
    if needed > available {
        return Err(RestoreError::NoRoom { path: folder.to_owned(), needed, available });
    }
    Ok(())
}

/// Removes the files of an unfinished restore, and no others.
fn remove_unfinished(layout: &Layout) -> Result<(), RestoreError> {
    let fs = layout.fs();
    let list = |folder: &Path| match fs.list(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        names => names,
    };
    let remove = |folder: &Path| -> io::Result<()> {
        for name in list(folder)? {
            let path = folder.join(name);
            if StoreFile::at(layout, &path).is_some() {
                fs.remove_file(&path)?;
            }
        }
        Ok(())
    };
    let remove_all = || {
        for path in [layout.catalog(), layout.catalog_mirror()] {
            fs.remove_if_exists(&path)?;
        }
        for folder in [layout.wal(), layout.packs(), layout.ids(), layout.state()] {
            remove(&folder)?;
        }
        let topics = layout.topics();
        list(&topics)?.iter().try_for_each(|topic| remove(&topics.join(topic)))
    };
    let path = layout.root().to_owned();
    remove_all().map_err(|source| OpenError::Io { path, source }.into())
}

/// Writes the files of a backup.
struct Writer<'a> {
    layout: &'a Layout,
    catalog: Option<Catalog>,
    /// The topic whose folder was created last.
    topic: Option<prombus_proto::Topic>,
    current: Option<(PathBuf, File, u64)>,
}

impl Writer<'_> {
    fn failed(path: &Path, source: io::Error) -> RestoreError {
        OpenError::Io { path: path.to_owned(), source }.into()
    }
}

impl Receiver for Writer<'_> {
    type Error = RestoreError;

    fn catalog(&mut self, catalog: Catalog) -> Result<(), RestoreError> {
        self.catalog = Some(catalog);
        Ok(())
    }

    fn begin(&mut self, file: &StoreFile, _bytes: u64) -> Result<(), RestoreError> {
        let fs = self.layout.fs();
        if let StoreFile::Segment(topic, _) | StoreFile::SparseIndex(topic, _) = file
            && self.topic.as_ref() != Some(topic)
        {
            let folder = self.layout.topic(topic);
            fs.create_folder(&folder).map_err(|error| Self::failed(&folder, error))?;
            self.topic = Some(topic.clone());
        }
        let path = file.path(self.layout);
        let opened = fs.open(&path, Access::CreateEmpty);
        let opened = opened.map_err(|error| Self::failed(&path, error))?;
        self.current = Some((path, opened, 0));
        Ok(())
    }

    fn content(&mut self, bytes: &[u8]) -> Result<(), RestoreError> {
        if let Some((path, file, offset)) = &mut self.current {
            file.write_all_at(bytes, *offset).map_err(|error| Self::failed(path, error))?;
            *offset += bytes.len() as u64;
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), RestoreError> {
        self.current = None;
        Ok(())
    }
}
