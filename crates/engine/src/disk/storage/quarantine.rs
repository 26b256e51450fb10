//! The quarantine folder: damaged bytes go there before anything removes or overwrites them.

use std::io;
use std::path::{Path, PathBuf};

use super::layout::Layout;

/// Durably copies `bytes`, which start at `offset` of `original`, and returns the copy's path.
pub(crate) fn copy_to_quarantine(
    layout: &Layout,
    original: &Path,
    offset: u64,
    bytes: &[u8],
) -> io::Result<PathBuf> {
    let name = original.file_name().unwrap_or_default().to_string_lossy();
    let quarantine = layout.quarantine();
    layout.fs().create_folder(&quarantine)?;
    let copy = quarantine.join(format!("{name}.from-{offset}"));
    layout.fs().write(&copy, bytes)?;
    layout.fs().sync_folder(&quarantine)?;
    Ok(copy)
}

/// Durably links a damaged file into quarantine, if it exists. This has to happen before the original is
/// removed: after a crash, recovery removes every WAL file that the catalog calls checkpointed.
pub(crate) fn link_into_quarantine(layout: &Layout, path: &Path) -> io::Result<()> {
    let (fs, quarantine) = (layout.fs(), layout.quarantine());
    let link = quarantine.join(path.file_name().unwrap_or_default());
    match fs.hard_link(path, &link) {
        Ok(()) => {}
        // Left by an attempt that did not finish.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        // Not every filesystem has hard links.
        Err(_) => {
            fs.write(&link, &fs.read(path)?)?;
        }
    }
    fs.sync_folder(&quarantine)
}
