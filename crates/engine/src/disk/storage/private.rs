//! Only the owner of a store may read it: nobody else may see the events.

use std::fs::{self, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use super::layout::Layout;

/// The mode of a new file.
pub(crate) const PRIVATE_FILE: u32 = 0o600;
/// The mode of a new folder.
pub(crate) const PRIVATE_FOLDER: u32 = 0o700;

/// The permissions of the group and of everyone else.
const OTHERS: u32 = 0o077;

/// Takes the permissions of others away from a data folder that an older version created, and from what
/// is in it. A failure is logged: it is no reason not to serve.
///
/// The folder itself comes last, so that a closed folder has only closed files, and a start looks at a
/// store of many files once.
pub(crate) fn close_to_others(layout: &Layout) {
    let root = layout.root();
    let mut closing = Closing::default();
    // Follows a link: the folder may be one.
    match fs::metadata(root) {
        Ok(metadata) if is_open(&metadata) => {
            closing.contents_of(root);
            closing.entry(root, &metadata);
        }
        Ok(_) => return,
        Err(error) => closing.failed(root, error),
    }
    let root = root.display();
    if closing.closed > 0 {
        let count = closing.closed;
        tracing::info!(
            "other users could read {count} files and folders of the data folder {root}; \
             their permissions are removed"
        );
    }
    if let Some((path, error)) = closing.failure {
        let path = path.display();
        tracing::warn!(
            "cannot take the permissions of other users away from {path}: {error}; they may be able \
             to read it; run `chmod -R go= {root}` as its owner"
        );
    }
}

#[derive(Default)]
struct Closing {
    /// How many files and folders others could access.
    closed: u64,
    /// The first file or folder that others may still be able to access.
    failure: Option<(PathBuf, io::Error)>,
}

impl Closing {
    fn contents_of(&mut self, folder: &Path) {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) => return self.failed(folder, error),
        };
        for entry in entries {
            let entry = entry.and_then(|entry| {
                let path = entry.path();
                // Does not follow links, which lead elsewhere.
                fs::symlink_metadata(&path).map(|metadata| (path, metadata))
            });
            match entry {
                Ok((path, metadata)) if !metadata.is_symlink() => {
                    if metadata.is_dir() && is_ours(&metadata) {
                        self.contents_of(&path);
                    }
                    self.entry(&path, &metadata);
                }
                Ok(_) => {}
                Err(error) => self.failed(folder, error),
            }
        }
    }

    fn entry(&mut self, path: &Path, metadata: &Metadata) {
        if !is_open(metadata) {
            return;
        }
        let closed = Permissions::from_mode(metadata.mode() & 0o7777 & !OTHERS);
        let result = match is_ours(metadata) {
            true => fs::set_permissions(path, closed),
            false => Err(io::Error::other("it belongs to another user")),
        };
        match result {
            Ok(()) => self.closed += 1,
            Err(error) => self.failed(path, error),
        }
    }

    fn failed(&mut self, path: &Path, error: io::Error) {
        self.failure.get_or_insert_with(|| (path.to_owned(), error));
    }
}

fn is_open(metadata: &Metadata) -> bool {
    metadata.mode() & OTHERS != 0
}

fn is_ours(metadata: &Metadata) -> bool {
    metadata.uid() == geteuid().as_raw()
}
