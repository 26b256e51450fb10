//! The files of the catalog: a full copy, and an edit for each change since then. Both exist twice.
//!
//! An edit is as large as what changed, so a checkpoint of a few topics costs the same whether the
//! store has ten topics or a million. When the edits take as much space as the full copy, or are
//! many, the catalog is written in full again.

use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use super::Catalog;
use super::edit::CatalogEdit;
use crate::disk::storage::faults::{is_damage, is_temporary};
use crate::disk::storage::file_header::{CATALOG, HeaderFault};
use crate::disk::storage::file_system::FileSystem;
use crate::disk::storage::layout::Layout;
use crate::disk::storage::quarantine::copy_to_quarantine;
use crate::{Incident, OpenError};

/// Edits up to this size in total are not worth a full copy.
const MIN_EDIT_BYTES: u64 = 256 << 10;

/// How far the files follow the catalog in memory.
#[derive(Debug, Default)]
pub(crate) struct CatalogFiles {
    /// The checkpoint of the full copy. `None` if there is none to which edits may be added.
    full: Option<u64>,
    full_bytes: u64,
    edit_bytes: u64,
    /// Whether something has only one good copy, because there was no room for another.
    pub(crate) lacks_copy: bool,
}

/// A catalog and its files.
#[derive(Debug)]
pub(crate) struct StoredCatalog {
    pub(crate) catalog: Catalog,
    pub(crate) files: CatalogFiles,
}

impl CatalogFiles {
    /// Durably records `edit`, a change of `before`.
    ///
    /// Whatever needs space comes first, so that a full disk leaves the old catalog in place and the
    /// caller may try again. Once a copy was renamed, a restart may find the new catalog: trying again
    /// would overwrite files that it names, so from there on no error is temporary.
    pub(crate) fn append(
        &mut self,
        layout: &Layout,
        before: &Catalog,
        edit: &CatalogEdit,
    ) -> io::Result<()> {
        if self.full.is_none() {
            self.store(layout, before)?;
        }
        let bytes = edit.encode();
        let temporary = ["edit.new", "mirror.new"].map(|name| layout.edits().join(name));
        replace_both(layout.fs(), &temporary, &layout.edit_copies(edit.checkpoint), &bytes)?;
        self.edit_bytes += bytes.len() as u64;
        Ok(())
    }

    /// Writes a full copy of `catalog` if there are many edits. Without space for it the edits stay.
    pub(crate) fn shorten(
        &mut self,
        layout: &Layout,
        catalog: &Catalog,
        max_edits: u64,
    ) -> io::Result<()> {
        let Some(full) = self.full else { return Ok(()) };
        let is_short = !self.lacks_copy
            && catalog.checkpoint - full < max_edits
            && self.edit_bytes < self.full_bytes.max(MIN_EDIT_BYTES);
        if is_short {
            return Ok(());
        }
        match self.store(layout, catalog) {
            Err(error) if is_temporary(&error) => Ok(()),
            stored => stored,
        }
    }

    /// Durably writes a full copy, and removes the edits that it contains. For errors see
    /// [`CatalogFiles::append`].
    pub(crate) fn store(&mut self, layout: &Layout, catalog: &Catalog) -> io::Result<()> {
        let (fs, bytes) = (layout.fs(), catalog.encode());
        let copies = [layout.catalog(), layout.catalog_mirror()];
        let temporary = ["catalog.new", "catalog.mirror.new"].map(|name| layout.root().join(name));
        replace_both(fs, &temporary, &copies, &bytes)?;
        for path in self.edits(catalog.checkpoint).flat_map(|edit| layout.edit_copies(edit)) {
            // What is left does not count, and is swept after the next start.
            let _ = fs.remove_file(&path);
        }
        self.full = Some(catalog.checkpoint);
        self.full_bytes = bytes.len() as u64;
        self.edit_bytes = 0;
        self.lacks_copy = false;
        Ok(())
    }

    /// Returns the numbers of the edits that lead to the catalog of `checkpoint`.
    pub(crate) fn edits(&self, checkpoint: u64) -> RangeInclusive<u64> {
        self.full.unwrap_or(checkpoint) + 1..=checkpoint
    }
}

/// Durably replaces two copies in one folder.
fn replace_both(
    fs: &FileSystem,
    temporary: &[PathBuf; 2],
    copies: &[PathBuf; 2],
    bytes: &[u8],
) -> io::Result<()> {
    for path in temporary {
        if let Err(error) = fs.write(path, bytes) {
            temporary.iter().for_each(|path| drop(fs.remove_file(path)));
            return Err(error);
        }
    }
    let rename_both = || {
        let mut pairs = temporary.iter().zip(copies);
        pairs.try_for_each(|(from, to)| fs.rename(from, to))?;
        fs.sync_folder(copies[0].parent().unwrap_or(Path::new("/")))
    };
    rename_both().map_err(|error| io::Error::other(format!("replacing the catalog: {error}")))
}

impl StoredCatalog {
    /// Creates the files of `catalog`.
    pub(crate) fn create(layout: &Layout, catalog: Catalog) -> io::Result<Self> {
        let mut files = CatalogFiles::default();
        files.store(layout, &catalog)?;
        Ok(Self { catalog, files })
    }

    /// Loads the newest intact full copy and the edits after it, or `None` if the folder never had a
    /// catalog. Reports a damaged or missing copy. If copies differ, writes a full copy before the good
    /// ones are damaged as well.
    ///
    /// # Errors
    ///
    /// If neither copy of something is readable: without it nothing can be said about the store.
    pub(crate) fn load(layout: &Layout) -> Result<Option<(Self, Vec<Incident>)>, OpenError> {
        let mut found = FoundCopies::default();
        let full_copies = [layout.catalog(), layout.catalog_mirror()];
        let full = found.newest(layout, &full_copies, |(catalog, _)| catalog.checkpoint)?;
        let Some((mut catalog, version)) = full else {
            if found.missing.len() < full_copies.len() || has_data(layout)? {
                return Err(unreadable(&full_copies[0]));
            }
            return Ok(None);
        };
        found.report_missing();
        let full = (version == CATALOG.version).then_some(catalog.checkpoint);
        let mut files = CatalogFiles { full, full_bytes: found.bytes, ..CatalogFiles::default() };
        let edits = edits_after(layout, catalog.checkpoint)?;
        for number in edits.iter().copied() {
            let copies = layout.edit_copies(number);
            let is_next = number == catalog.checkpoint + 1;
            let edit = found.newest(layout, &copies, |edit: &CatalogEdit| edit.checkpoint)?;
            match edit.filter(|edit| is_next && edit.checkpoint == number) {
                Some(edit) => catalog.apply(edit),
                None => return Err(unreadable(&copies[0])),
            }
            files.edit_bytes += found.bytes;
            // A crash leaves one copy of the last edit at worst.
            if edits.last() != Some(&number) {
                found.report_missing();
            }
        }
        let io = |source| OpenError::Io { path: layout.catalog(), source };
        for (path, bytes) in &found.damaged {
            copy_to_quarantine(layout, path, 0, bytes).map_err(io)?;
        }
        if found.differ || !found.incidents.is_empty() {
            match files.store(layout, &catalog) {
                // The next change of the catalog tries again.
                Err(error) if is_temporary(&error) => files.lacks_copy = true,
                stored => stored.map_err(io)?,
            }
        }
        Ok(Some((Self { catalog, files }, found.incidents)))
    }
}

/// Something that a copy contains.
trait Decode: Sized + PartialEq {
    fn decode(bytes: &[u8]) -> Result<Self, HeaderFault>;
}

impl Decode for (Catalog, u16) {
    fn decode(bytes: &[u8]) -> Result<Self, HeaderFault> {
        Catalog::decode(bytes)
    }
}

impl Decode for CatalogEdit {
    fn decode(bytes: &[u8]) -> Result<Self, HeaderFault> {
        CatalogEdit::decode(bytes)
    }
}

/// What was found about copies on disk.
#[derive(Default)]
struct FoundCopies {
    /// The size of the last copy that was decoded.
    bytes: u64,
    /// Whether two copies of the same thing differ, or one is missing.
    differ: bool,
    /// The copies that were missing in the last call.
    missing: Vec<PathBuf>,
    damaged: Vec<(PathBuf, Vec<u8>)>,
    incidents: Vec<Incident>,
}

impl FoundCopies {
    /// Decodes `copies` and returns the newest one that is intact.
    fn newest<T: Decode>(
        &mut self,
        layout: &Layout,
        copies: &[PathBuf; 2],
        number: impl Fn(&T) -> u64,
    ) -> Result<Option<T>, OpenError> {
        let mut newest: Option<T> = None;
        self.missing.clear();
        for path in copies {
            let bytes = match layout.fs().read(path) {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    self.missing.push(path.clone());
                    continue;
                }
                // There is nothing to put into quarantine.
                Err(error) if is_damage(&error) => {
                    let (file, detail) = (path.clone(), format!("it cannot be read: {error}"));
                    self.incidents.push(Incident::Rebuilt { file, detail });
                    continue;
                }
                Err(source) => return Err(OpenError::Io { path: path.clone(), source }),
            };
            match T::decode(&bytes) {
                Ok(found) => {
                    self.bytes = bytes.len() as u64;
                    self.differ |= newest.as_ref().is_some_and(|newest| *newest != found);
                    if newest.as_ref().is_none_or(|newest| number(newest) < number(&found)) {
                        newest = Some(found);
                    }
                }
                Err(fault @ HeaderFault::Newer { .. }) => return Err(fault.into_open_error(path)),
                Err(HeaderFault::Damaged(detail)) => {
                    self.damaged.push((path.clone(), bytes));
                    let (file, detail) = (path.clone(), detail.to_owned());
                    self.incidents.push(Incident::Rebuilt { file, detail });
                }
            }
        }
        self.differ |= !self.missing.is_empty();
        Ok(newest)
    }

    /// Reports the copies that were missing in the last call.
    fn report_missing(&mut self) {
        let incident = |file| Incident::Rebuilt { file, detail: "missing".to_owned() };
        self.incidents.extend(self.missing.drain(..).map(incident));
    }
}

/// Returns the numbers of the edits after `checkpoint`, ascending.
pub(super) fn edits_after(layout: &Layout, checkpoint: u64) -> Result<Vec<u64>, OpenError> {
    let folder = layout.edits();
    let mut numbers = Vec::new();
    for extension in ["edit", "mirror"] {
        match layout.numbered(&folder, extension) {
            Ok(found) => numbers.extend(found),
            // Older versions had no such folder.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(OpenError::Io { path: folder, source }),
        }
    }
    numbers.retain(|number| *number > checkpoint);
    numbers.sort_unstable();
    numbers.dedup();
    Ok(numbers)
}

fn unreadable(path: &Path) -> OpenError {
    let detail = "neither it nor its mirror can be read; nothing was changed".to_owned();
    OpenError::Damaged { path: path.to_owned(), detail }
}

/// Returns `true` if the folder has files that only a catalog could explain.
fn has_data(layout: &Layout) -> Result<bool, OpenError> {
    let has_files = |folder: &Path| match layout.fs().list(folder) {
        Ok(names) => Ok(!names.is_empty()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(OpenError::Io { path: folder.to_owned(), source }),
    };
    let folders = [
        layout.edits(),
        layout.wal(),
        layout.topics(),
        layout.packs(),
        layout.ids(),
        layout.state(),
    ];
    for folder in &folders {
        if has_files(folder)? {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::encoding::tests::catalog;
    use super::*;

    fn load(layout: &Layout) -> (Catalog, usize) {
        let (stored, incidents) = StoredCatalog::load(layout).unwrap().expect("a catalog");
        (stored.catalog, incidents.len())
    }

    fn layout(folder: &tempfile::TempDir) -> Layout {
        let layout = Layout::new(folder.path().to_owned());
        layout.create_folders().unwrap();
        layout
    }

    #[test]
    fn repairs_one_damaged_copy_and_fails_if_both_are() {
        let folder = tempfile::tempdir().unwrap();
        let layout = layout(&folder);
        assert!(StoredCatalog::load(&layout).unwrap().is_none());
        let mut stored = StoredCatalog::create(&layout, catalog()).unwrap();
        assert_eq!(load(&layout), (catalog(), 0));
        fs::write(layout.catalog(), b"x").unwrap();
        assert_eq!(load(&layout), (catalog(), 1));
        assert!(layout.quarantine().join("catalog.from-0").exists());
        // Both copies are intact again, also after a crash between writing the two.
        assert_eq!(load(&layout), (catalog(), 0));
        let older = fs::read(layout.catalog_mirror()).unwrap();
        let newer = Catalog { checkpoint: 9, ..catalog() };
        stored.files.store(&layout, &newer).unwrap();
        fs::write(layout.catalog_mirror(), older).unwrap();
        assert_eq!(load(&layout), (newer.clone(), 0));
        fs::remove_file(layout.catalog()).unwrap();
        assert_eq!(load(&layout), (newer, 1));
        fs::write(layout.catalog(), b"x").unwrap();
        fs::write(layout.catalog_mirror(), b"x").unwrap();
        assert!(matches!(StoredCatalog::load(&layout), Err(OpenError::Damaged { .. })));
    }

    #[test]
    fn rejects_data_without_a_catalog() {
        let folder = tempfile::tempdir().unwrap();
        let layout = layout(&folder);
        let [edit, _] = layout.edit_copies(1);
        for file in [layout.wal_file(1), edit, layout.id_run(1), layout.state_run(1)] {
            fs::write(&file, b"x").unwrap();
            assert!(matches!(StoredCatalog::load(&layout), Err(OpenError::Damaged { .. })));
            fs::remove_file(&file).unwrap();
        }
        assert!(StoredCatalog::load(&layout).unwrap().is_none());
    }

    /// Adds an edit and returns the catalog that results.
    fn append(stored: &mut StoredCatalog, layout: &Layout, wal: u64) -> Catalog {
        let mut edit = stored.catalog.edit();
        edit.checkpointed_wal = wal;
        stored.files.append(layout, &stored.catalog, &edit).unwrap();
        stored.catalog.apply(edit);
        stored.catalog.clone()
    }

    #[test]
    fn repairs_one_damaged_copy_of_an_edit_and_fails_if_both_are() {
        let folder = tempfile::tempdir().unwrap();
        let layout = layout(&folder);
        let mut stored = StoredCatalog::create(&layout, catalog()).unwrap();
        append(&mut stored, &layout, 20);
        let newest = append(&mut stored, &layout, 21);
        assert_eq!(load(&layout), (newest.clone(), 0));
        let [edit, mirror] = layout.edit_copies(newest.checkpoint);
        // A crash between the two names.
        fs::remove_file(&edit).unwrap();
        assert_eq!(load(&layout), (newest, 0));
        assert!(!mirror.exists(), "a full copy was written instead");
        let mut stored = StoredCatalog::load(&layout).unwrap().unwrap().0;
        append(&mut stored, &layout, 22);
        let newest = append(&mut stored, &layout, 23);
        let [edit, _] = layout.edit_copies(newest.checkpoint - 1);
        fs::write(&edit, b"x").unwrap();
        assert_eq!(load(&layout), (newest, 1));
        let mut stored = StoredCatalog::load(&layout).unwrap().unwrap().0;
        append(&mut stored, &layout, 24);
        let newest = append(&mut stored, &layout, 25);
        let copies = layout.edit_copies(newest.checkpoint - 1);
        fs::remove_file(&copies[0]).unwrap();
        assert_eq!(load(&layout), (newest, 1), "no crash explains that");
        let mut stored = StoredCatalog::load(&layout).unwrap().unwrap().0;
        append(&mut stored, &layout, 26);
        let newest = append(&mut stored, &layout, 27);
        let copies = layout.edit_copies(newest.checkpoint - 1);
        copies.iter().for_each(|copy| fs::remove_file(copy).unwrap());
        assert!(matches!(StoredCatalog::load(&layout), Err(OpenError::Damaged { .. })));
    }

    #[test]
    fn many_edits_become_a_full_copy() {
        let folder = tempfile::tempdir().unwrap();
        let layout = layout(&folder);
        let mut stored = StoredCatalog::create(&layout, catalog()).unwrap();
        for wal in 20..30 {
            append(&mut stored, &layout, wal);
            let StoredCatalog { catalog, files } = &mut stored;
            files.shorten(&layout, catalog, 4).unwrap();
            assert!(fs::read_dir(layout.edits()).unwrap().count() < 2 * 4);
            assert_eq!(load(&layout), (catalog.clone(), 0));
        }
    }

    #[test]
    fn a_catalog_of_an_older_version_is_rewritten_before_its_first_edit() {
        let folder = tempfile::tempdir().unwrap();
        let layout = layout(&folder);
        let catalog = catalog();
        let mut stored = StoredCatalog { catalog, files: CatalogFiles::default() };
        let newest = append(&mut stored, &layout, 20);
        assert_eq!(load(&layout), (newest, 0));
    }
}
