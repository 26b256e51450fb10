//! The lock that keeps a second process out of a store.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use super::layout::Layout;
use super::private::{PRIVATE_FILE, PRIVATE_FOLDER};
use crate::OpenError;

/// Locks the data folder itself, because a lock file can be removed, and the lock file, which is all
/// that earlier versions lock.
#[derive(Debug)]
pub(crate) struct StoreLock {
    file: File,
    /// `None` on a filesystem that cannot lock a folder.
    folder: Option<File>,
}

impl StoreLock {
    /// Creates the folder if it does not exist, and locks it.
    pub(crate) fn acquire(layout: &Layout) -> Result<Self, OpenError> {
        let root = layout.root();
        let failed = |source| OpenError::Io { path: root.to_owned(), source };
        create_durable_folder(root).map_err(failed)?;
        let locked = |file: &File| match file.try_lock() {
            Ok(()) => Ok(None),
            Err(TryLockError::WouldBlock) => Err(OpenError::Locked { path: root.to_owned() }),
            Err(TryLockError::Error(error)) => Ok(Some(error)),
        };
        let folder = File::open(root).map_err(failed)?;
        let folder = locked(&folder)?.is_none().then_some(folder);
        let mut options = File::options();
        options.write(true).create(true).truncate(false).mode(PRIVATE_FILE);
        let file = options.open(layout.lock()).map_err(failed)?;
        match locked(&file)? {
            Some(error) => Err(failed(error)),
            None => Ok(Self { file, folder }),
        }
    }

    /// Unlocks explicitly, because a child that was just forked may still have the files open.
    pub(crate) fn release(self) {
        let _ = self.file.unlock();
        if let Some(folder) = self.folder {
            let _ = folder.unlock();
        }
    }
}

/// Creates the folder and those above it as far as they are missing, and makes their names durable.
fn create_durable_folder(folder: &Path) -> io::Result<()> {
    let is_missing = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.exists();
    let created: Vec<_> = folder.ancestors().take_while(is_missing).collect();
    // Only the folder itself is private; those above it may have other uses.
    if let Some(above) = folder.parent() {
        fs::create_dir_all(above)?;
    }
    DirBuilder::new().recursive(true).mode(PRIVATE_FOLDER).create(folder)?;
    for folder in created {
        let above = folder.parent().filter(|above| !above.as_os_str().is_empty());
        File::open(above.unwrap_or(Path::new(".")))?.sync_all()?;
    }
    Ok(())
}
