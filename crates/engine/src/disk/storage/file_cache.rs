//! A bounded cache of files that are open for reading.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::file_header::{self, FileKind, HeaderFault};
use super::file_system::{Access, File, FileSystem};

/// The most recently used files, so that thousands of topics do not need thousands of open files.
#[derive(Debug)]
pub(crate) struct FileCache {
    fs: FileSystem,
    limit: usize,
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    /// Each file with the value of `uses` at its last use.
    files: HashMap<PathBuf, (Arc<File>, u64)>,
    uses: u64,
}

impl FileCache {
    pub(crate) fn new(fs: FileSystem, limit: usize) -> Self {
        Self { fs, limit: limit.max(1), entries: Mutex::default() }
    }

    /// Opens the file at `path`, which has to be of `kind`. A newer format version is an error. A
    /// damaged header is only reported, because everything after it has checksums of its own.
    pub(crate) fn open(
        &self,
        path: &Path,
        kind: FileKind,
        report: impl FnOnce(&'static str),
    ) -> io::Result<Arc<File>> {
        let mut entries = self.entries.lock();
        entries.uses += 1;
        let now = entries.uses;
        if let Some((file, last_use)) = entries.files.get_mut(path) {
            *last_use = now;
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(self.fs.open(path, Access::Read)?);
        check_header(&file, path, kind, report)?;
        if entries.files.len() >= self.limit {
            let oldest = entries.files.iter().min_by_key(|(_, (_, last_use))| *last_use);
            if let Some(path) = oldest.map(|(path, _)| path.clone()) {
                entries.files.remove(&path);
            }
        }
        entries.files.insert(path.to_owned(), (Arc::clone(&file), now));
        Ok(file)
    }

    /// Returns how many files are open.
    pub(crate) fn open_files(&self) -> usize {
        self.entries.lock().files.len()
    }

    /// Drops a file that is about to be deleted.
    pub(crate) fn forget(&self, path: &Path) {
        self.entries.lock().files.remove(path);
    }
}

fn check_header(
    file: &File,
    path: &Path,
    kind: FileKind,
    report: impl FnOnce(&'static str),
) -> io::Result<()> {
    match file_header::read(file, kind)? {
        Ok(_) => {}
        Err(HeaderFault::Damaged(detail)) => report(detail),
        Err(newer @ HeaderFault::Newer { .. }) => {
            let error = newer.into_open_error(path);
            return Err(io::Error::new(io::ErrorKind::Unsupported, error));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::disk::storage::file_header::{SEGMENT, WAL};

    #[test]
    fn evicts_the_least_recently_used_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = |n: u32| folder.path().join(n.to_string());
        (0..3).for_each(|n| std::fs::write(path(n), file_header::encode(WAL, 1)).unwrap());
        let cache = FileCache::new(FileSystem::Os, 2);
        let is_cached = |n| cache.entries.lock().files.contains_key(&path(n));
        let open = |n| cache.open(&path(n), WAL, |_| panic!("the header is fine"));
        open(0).unwrap();
        open(1).unwrap();
        open(0).unwrap();
        open(2).unwrap();
        assert!(is_cached(0) && !is_cached(1) && is_cached(2));
        cache.forget(&path(2));
        assert!(!is_cached(2));
        assert!(open(9).is_err());
    }

    #[test]
    fn reports_a_damaged_header_and_rejects_a_newer_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, file_header::encode(WAL, 1)).unwrap();
        let mut reported = None;
        FileCache::new(FileSystem::Os, 1)
            .open(&path, SEGMENT, |detail| reported = Some(detail))
            .unwrap();
        assert!(reported.is_some());
        std::fs::write(&path, file_header::encode(SEGMENT.newer(), 1)).unwrap();
        let error = FileCache::new(FileSystem::Os, 1).open(&path, SEGMENT, |_| ()).unwrap_err();
        assert!(error.to_string().contains("format version 2"), "{error}");
    }
}
