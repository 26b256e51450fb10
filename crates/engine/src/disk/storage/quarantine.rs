//! The quarantine folder: damaged bytes go there before anything removes or overwrites them.

use std::io;
use std::path::{Path, PathBuf};

use super::faults::is_temporary;
use super::layout::Layout;
use super::reserve;

/// Durably copies `bytes`, which start at `offset` of `original`, and returns the copy's path. A full disk
/// must not keep a store from starting, so the copy may take the space that is set aside for trims.
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
    match write_copy(layout, &copy, bytes) {
        Err(error) if is_temporary(&error) => {
            reserve::release(layout);
            write_copy(layout, &copy, bytes)?;
        }
        written => written?,
    }
    layout.fs().sync_folder(&quarantine)?;
    Ok(copy)
}

/// Writes a copy under another name first, so that an unfinished one never passes for a copy.
fn write_copy(layout: &Layout, copy: &Path, bytes: &[u8]) -> io::Result<()> {
    let (fs, mut temporary) = (layout.fs(), copy.to_owned().into_os_string());
    temporary.push(".new");
    let temporary = PathBuf::from(temporary);
    let written = fs.write(&temporary, bytes).and_then(|()| fs.rename(&temporary, copy));
    if written.is_err() {
        let _ = fs.remove_file(&temporary);
    }
    written
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
            write_copy(layout, &link, &fs.read(path)?)?;
        }
    }
    fs.sync_folder(&quarantine)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustix::io::Errno;

    use super::*;
    use crate::disk::storage::file_system::FileSystem;
    use crate::disk::storage::file_system::simulated::{Faults, SimulatedDisk};

    #[test]
    fn an_unfinished_copy_never_passes_for_a_copy() {
        let content: Vec<u8> = (0..5000).map(|n| u8::try_from(n % 251).unwrap()).collect();
        for seed in 0..200 {
            let disk = SimulatedDisk::new(seed);
            let fs = FileSystem::Simulated(Arc::clone(&disk));
            let layout = Layout::on(fs.clone(), PathBuf::from("/store"));
            layout.create_folders().unwrap();
            let original = layout.wal_file(7);
            fs.write(&original, &content).unwrap();
            disk.set_faults(Some(Faults { error: Errno::PERM, one_in: 3 }));
            let first = link_into_quarantine(&layout, &original);
            disk.end_faults();
            // What a later attempt finds may have been left by the first.
            if first.is_err() {
                link_into_quarantine(&layout, &original).unwrap();
            }
            let link = layout.quarantine().join(original.file_name().unwrap());
            assert!(fs.read(&link).unwrap() == content, "seed {seed}");
        }
    }
}
