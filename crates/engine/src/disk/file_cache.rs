//! A bounded number of files kept open for reading.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::disk::file_header::{self, FileKind, HEADER_BYTES, HeaderFault};

/// Files that were read lately. Thousands of topics do not mean thousands of open files.
#[derive(Debug)]
pub(crate) struct OpenFiles {
    limit: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    files: HashMap<PathBuf, (Arc<File>, u64)>,
    uses: u64,
}

impl OpenFiles {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit: limit.max(1), inner: Mutex::default() }
    }

    /// The file at `path`, which has to be of `kind`. One of a newer version is an error; a damaged
    /// header is only told: what follows has checksums of its own.
    pub(crate) fn open(
        &self,
        path: &Path,
        kind: FileKind,
        tell: impl FnOnce(&'static str),
    ) -> io::Result<Arc<File>> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.uses += 1;
        let now = inner.uses;
        if let Some((file, last_use)) = inner.files.get_mut(path) {
            *last_use = now;
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(File::open(path)?);
        check_header(&file, path, kind, tell)?;
        if inner.files.len() >= self.limit {
            let oldest = inner.files.iter().min_by_key(|(_, (_, last_use))| *last_use);
            if let Some(path) = oldest.map(|(path, _)| path.clone()) {
                inner.files.remove(&path);
            }
        }
        inner.files.insert(path.to_owned(), (Arc::clone(&file), now));
        Ok(file)
    }

    /// Lets go of a file that is about to be deleted.
    pub(crate) fn forget(&self, path: &Path) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).files.remove(path);
    }
}

/// See [`OpenFiles::open`].
pub(crate) fn check_header(
    file: &File,
    path: &Path,
    kind: FileKind,
    tell: impl FnOnce(&'static str),
) -> io::Result<()> {
    match read_header(file, kind)? {
        Ok(_) => {}
        Err(HeaderFault::Damaged(detail)) => tell(detail),
        Err(newer @ HeaderFault::Newer { .. }) => {
            let refused = newer.into_open_error(path);
            return Err(io::Error::new(io::ErrorKind::Unsupported, refused));
        }
    }
    Ok(())
}

/// The number in the header of a file that should be of `kind`, or what is wrong with it.
pub(crate) fn read_header(file: &File, kind: FileKind) -> io::Result<Result<u64, HeaderFault>> {
    let mut header = [0; HEADER_BYTES];
    match file.read_exact_at(&mut header, 0) {
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error),
        _ => Ok(file_header::decode(kind, &header)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::disk::file_header::{SEGMENT, WAL};

    #[test]
    fn keeps_the_limit_and_the_lately_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = |n: u32| folder.path().join(n.to_string());
        (0..3).for_each(|n| std::fs::write(path(n), file_header::encode(WAL, 1)).unwrap());
        let files = OpenFiles::new(2);
        let kept = |n| files.inner.lock().unwrap().files.contains_key(&path(n));
        let open = |n| files.open(&path(n), WAL, |_| panic!("the header is fine"));
        open(0).unwrap();
        open(1).unwrap();
        open(0).unwrap();
        open(2).unwrap();
        assert!(kept(0) && !kept(1) && kept(2));
        files.forget(&path(2));
        assert!(!kept(2));
        assert!(open(9).is_err());
    }

    #[test]
    fn tells_a_damaged_header_and_refuses_a_newer_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, file_header::encode(WAL, 1)).unwrap();
        let mut told = None;
        OpenFiles::new(1).open(&path, SEGMENT, |detail| told = Some(detail)).unwrap();
        assert!(told.is_some());
        std::fs::write(&path, file_header::encode(SEGMENT.newer(), 1)).unwrap();
        let refused = OpenFiles::new(1).open(&path, SEGMENT, |_| ()).unwrap_err();
        assert!(refused.to_string().contains("format version 2"), "{refused}");
    }
}
