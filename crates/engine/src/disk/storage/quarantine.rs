//! The quarantine folder: damaged bytes go there before anything removes or overwrites them.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::file_io::sync_folder;
use super::layout::Layout;

/// Durably copies `bytes`, which start at `offset` of `original`, and returns the copy's path.
pub(crate) fn copy_to_quarantine(
    layout: &Layout,
    original: &Path,
    offset: u64,
    bytes: &[u8],
) -> io::Result<PathBuf> {
    let name = original.file_name().unwrap_or_default().to_string_lossy();
    fs::create_dir_all(layout.quarantine())?;
    let copy = layout.quarantine().join(format!("{name}.from-{offset}"));
    let mut file = File::create(&copy)?;
    io::Write::write_all(&mut file, bytes)?;
    file.sync_all()?;
    sync_folder(&layout.quarantine())?;
    Ok(copy)
}

/// Durably links a damaged file into quarantine. This has to happen before the original is
/// removed: after a crash, recovery removes every WAL file that the catalog calls checkpointed.
pub(crate) fn link_into_quarantine(layout: &Layout, path: &Path) -> io::Result<()> {
    let quarantine = layout.quarantine();
    let link = quarantine.join(path.file_name().unwrap_or_default());
    match fs::hard_link(path, &link) {
        Ok(()) => {}
        // Left by an attempt that did not finish.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        // Not every filesystem has hard links.
        Err(_) => {
            fs::copy(path, &link)?;
            File::open(&link)?.sync_all()?;
        }
    }
    sync_folder(&quarantine)
}
