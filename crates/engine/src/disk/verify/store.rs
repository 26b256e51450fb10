//! Checks a data folder that no server uses.

use std::io;
use std::path::Path;

use thiserror::Error;

use super::content::{ContentCheck, ContentFault, Counted};
use super::contents::{Content, Length, check_plausible, named_files};
use super::report::{FileKindName, Report};
use crate::OpenError;
use crate::disk::checkpoint::catalog::Catalog;
use crate::disk::checkpoint::catalog::inspect::InspectedCatalog;
use crate::disk::storage::faults::is_damage;
use crate::disk::storage::file_system::{Access, File};
use crate::disk::storage::layout::Layout;
use crate::disk::storage::lock::StoreLock;
use crate::disk::storage::store_file::StoreFile;

/// How much is read at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// Why a data folder cannot be checked.
#[derive(Debug, Error)]
pub enum VerifyError {
    /// There is no store.
    #[error("{0} has no catalog: it is not the data folder of a store")]
    NotAStore(String),
    /// It is in use, or it cannot be read.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// Checks every file of the store in `folder`. `progress` gets the bytes so far, and in total.
///
/// # Errors
///
/// If the folder is not a store, if a server uses it, or if it cannot be read. Damage is in the report.
pub fn verify_store(
    folder: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Report, VerifyError> {
    let layout = Layout::new(folder.to_owned());
    let is_store = [layout.catalog(), layout.catalog_mirror(), layout.restoring()];
    if !is_store.iter().any(|path| path.exists()) {
        return Err(VerifyError::NotAStore(folder.display().to_string()));
    }
    let lock = StoreLock::acquire(&layout)?;
    let report = match layout.restoring().exists() {
        true => Err(OpenError::Unfinished { path: folder.to_owned() }.into()),
        false => verify_locked(&layout, progress),
    };
    lock.release();
    report
}

/// Checks every file of a store that is locked.
pub(crate) fn verify_locked(
    layout: &Layout,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Report, VerifyError> {
    let root = layout.root();
    let not_a_store = || VerifyError::NotAStore(root.display().to_string());
    let InspectedCatalog { catalog, files, bytes, faults } =
        InspectedCatalog::read(layout)?.ok_or_else(not_a_store)?;
    let mut report = Report::default();
    let topics = catalog.as_ref().map_or(0, |catalog| catalog.topics.len() as u64);
    report.add(FileKindName::Catalog, files, bytes, topics);
    for (path, detail) in faults {
        let name = path.strip_prefix(root).unwrap_or(&path);
        report.fault(&name.display(), detail);
    }
    let Some(catalog) = catalog else { return Ok(report) };
    if let Err(detail) = check_plausible(&catalog) {
        report.fault(&"catalog", detail);
        return Ok(report);
    }
    let mut check = StoreCheck { layout, report, done: 0, total: 0, progress };
    check.all(&catalog)?;
    Ok(check.report)
}

struct StoreCheck<'a> {
    layout: &'a Layout,
    report: Report,
    done: u64,
    total: u64,
    progress: &'a mut dyn FnMut(u64, u64),
}

impl StoreCheck<'_> {
    fn all(&mut self, catalog: &Catalog) -> Result<(), VerifyError> {
        let layout = self.layout;
        let folder = layout.wal();
        let mut logs = match layout.numbered(&folder, "wal") {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            found => found.map_err(|source| OpenError::Io { path: folder, source })?,
        };
        // The others are left over.
        logs.retain(|number| *number > catalog.checkpointed_wal);
        let named = named_files(catalog);
        let length = |file: &StoreFile| {
            let opened = layout.fs().open(&file.path(layout), Access::Read);
            opened.and_then(|opened| opened.len()).unwrap_or(0)
        };
        let of_logs: u64 = logs.iter().map(|number| length(&StoreFile::Wal(*number))).sum();
        self.total = of_logs + named.keys().map(length).sum::<u64>();
        let mut next_frame = Some(catalog.next_frame);
        let mut expected = catalog.checkpointed_wal + 1;
        for number in logs {
            for missing in expected..number {
                self.report.fault(&StoreFile::Wal(missing), "it is missing");
                next_frame = None;
            }
            expected = number + 1;
            let content = Content::Log { first_frame: next_frame };
            let checked = self.file(&StoreFile::Wal(number), &content)?;
            next_frame = checked.and_then(|checked| checked.next_frame);
        }
        for (file, content) in &named {
            self.file(file, content)?;
        }
        Ok(())
    }

    /// Returns `None` if it is damaged.
    fn file(
        &mut self,
        file: &StoreFile,
        content: &Content,
    ) -> Result<Option<Counted>, VerifyError> {
        let path = file.path(self.layout);
        let opened = match self.layout.fs().open(&path, Access::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.report.fault(file, "it is missing");
                return Ok(None);
            }
            opened => opened,
        };
        let checked = opened.and_then(|opened| self.read(&opened, file, content));
        let (bytes, checked) =
            checked.map_err(|source| OpenError::Io { path, source }).map_err(VerifyError::Open)?;
        self.report.add_checked(file, bytes, &checked);
        Ok(checked.ok())
    }

    /// Returns the length of the file, and what it contains.
    fn read(
        &mut self,
        opened: &File,
        file: &StoreFile,
        content: &Content,
    ) -> io::Result<(u64, Result<Counted, ContentFault>)> {
        let bytes = opened.len()?;
        let end = match content.length() {
            // Preallocated space is not read.
            _ if matches!(content, Content::Log { .. }) => opened.end_of_data()?,
            Length::Known(known) => known.min(bytes),
            Length::AtLeast(_) => bytes,
        };
        let mut check = ContentCheck::new(file, content);
        let (mut offset, mut buffer) = (0, vec![0; CHUNK_BYTES]);
        while offset < end {
            let left = usize::try_from(end - offset).unwrap_or(usize::MAX);
            let chunk = &mut buffer[..left.min(CHUNK_BYTES)];
            match opened.read_exact_at(chunk, offset) {
                Ok(()) => check.push(chunk),
                Err(error) if is_damage(&error) => {
                    let detail = format!("cannot read it: {error}");
                    return Ok((bytes, Err(ContentFault { offset, detail })));
                }
                Err(error) => return Err(error),
            }
            offset += chunk.len() as u64;
            (self.progress)(self.done + offset, self.total);
        }
        self.done += bytes;
        Ok((bytes, check.finish()))
    }
}
