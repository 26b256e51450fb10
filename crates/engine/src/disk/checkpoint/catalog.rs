//! The catalog: the store as of its last checkpoint, with its topics, segments and sorted runs.
//!
//! Each checkpoint writes a complete catalog to a temporary file and renames it over the old one,
//! in two copies. Everything else depends on it: a segment is valid up to the length that the
//! catalog gives, so whatever an unfinished checkpoint left is simply overwritten.

mod encoding;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use prombus_proto::{Seq, Timestamp, Topic};

use crate::disk::ids::TopicOrdinal;
use crate::disk::ids::ahead::NewestIds;
use crate::disk::ids::run::IdRunInfo;
use crate::disk::segment::Segment;
use crate::disk::state::run::StateRunInfo;
use crate::disk::storage::file_header::HeaderFault;
use crate::disk::storage::layout::Layout;
use crate::disk::storage::quarantine::copy_to_quarantine;
use crate::{Incident, OpenError};

/// The store as of its last checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Catalog {
    /// Counts the checkpoints.
    pub(crate) checkpoint: u64,
    /// The number of the last WAL file that was checkpointed.
    pub(crate) checkpointed_wal: u64,
    pub(crate) next_frame: u64,
    pub(crate) last_version: u64,
    /// A secret that makes the hashes of ids unpredictable.
    pub(crate) store_seed: u64,
    /// The number of the next sorted run, of ids or state.
    pub(crate) next_run: u64,
    pub(crate) id_runs: Vec<IdRunInfo>,
    /// Oldest first.
    pub(crate) state_runs: Vec<StateRunInfo>,
    pub(crate) topics: BTreeMap<Topic, CatalogTopic>,
}

/// A topic as of the last checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CatalogTopic {
    pub(crate) ordinal: TopicOrdinal,
    pub(crate) first: Seq,
    pub(crate) next: Seq,
    pub(crate) newest_ids: NewestIds,
    /// The revision of the newest retention rule that was applied.
    pub(crate) rule: u64,
    /// The latest arrival of the trimmed events.
    pub(crate) trimmed_arrival: Timestamp,
    pub(crate) segments: Vec<Segment>,
}

impl CatalogTopic {
    /// Removes the segments that end before the first event, and returns their files.
    pub(crate) fn drop_trimmed(&mut self, layout: &Layout, topic: &Topic) -> Vec<PathBuf> {
        let trimmed = self.segments.partition_point(|segment| segment.last < self.first);
        let files = |segment: Segment| {
            [layout.segment(topic, segment.first), layout.sparse_index(topic, segment.first)]
        };
        self.segments.drain(..trimmed).flat_map(files).collect()
    }
}

/// The copies of the catalog that were found on disk.
#[derive(Default)]
struct FoundCopies {
    newest: Option<Catalog>,
    differ: bool,
    missing: usize,
    damaged: Vec<(PathBuf, Vec<u8>)>,
    incidents: Vec<Incident>,
}

impl Catalog {
    /// The catalog of an empty store.
    pub(crate) fn new(store_seed: u64) -> Self {
        Self {
            checkpoint: 0,
            checkpointed_wal: 0,
            next_frame: 1,
            last_version: 0,
            store_seed,
            next_run: 1,
            id_runs: Vec::new(),
            state_runs: Vec::new(),
            topics: BTreeMap::new(),
        }
    }

    pub(crate) fn take_run_number(&mut self) -> u64 {
        self.next_run += 1;
        self.next_run - 1
    }

    /// Durably replaces both copies on disk.
    ///
    /// Whatever needs space comes first, so that a full disk leaves the old catalog in place and the
    /// caller may try again. Once a copy was renamed, a restart may find the new catalog: trying again
    /// would overwrite files that it names, so from there on no error is temporary.
    pub(crate) fn store(&self, layout: &Layout) -> io::Result<()> {
        let (fs, bytes) = (layout.fs(), self.encode());
        let copies = [layout.catalog(), layout.catalog_mirror()];
        let temporary = |path: &Path| path.with_file_name(format!("{}.new", file_name(path)));
        for path in &copies {
            fs.write(&temporary(path), &bytes)?;
        }
        let replace_both = || {
            copies.iter().try_for_each(|path| fs.rename(&temporary(path), path))?;
            fs.sync_folder(layout.root())
        };
        replace_both().map_err(|error| io::Error::other(format!("replacing the catalog: {error}")))
    }

    /// Loads the newest intact copy, or `None` if the folder never had a catalog. Reports a damaged
    /// or missing copy and rewrites copies that differ, before the good one is damaged as well.
    ///
    /// # Errors
    ///
    /// If neither copy is readable: without a catalog nothing can be said about the store.
    pub(crate) fn load(layout: &Layout) -> Result<Option<(Self, Vec<Incident>)>, OpenError> {
        let FoundCopies { newest, differ, missing, damaged, incidents } = read_copies(layout)?;
        match newest {
            Some(catalog) => {
                let io = |source| OpenError::Io { path: layout.catalog(), source };
                for (path, bytes) in &damaged {
                    copy_to_quarantine(layout, path, 0, bytes).map_err(io)?;
                }
                if differ || !incidents.is_empty() {
                    catalog.store(layout).map_err(io)?;
                }
                Ok(Some((catalog, incidents)))
            }
            None if missing == 2 && !has_data(layout)? => Ok(None),
            None => Err(OpenError::Damaged {
                path: layout.catalog(),
                detail: "neither it nor its mirror can be read; nothing was changed".to_owned(),
            }),
        }
    }
}

fn file_name(path: &Path) -> Cow<'_, str> {
    path.file_name().unwrap_or_default().to_string_lossy()
}

fn read_copies(layout: &Layout) -> Result<FoundCopies, OpenError> {
    let mut found = FoundCopies::default();
    for path in [layout.catalog(), layout.catalog_mirror()] {
        let bytes = match layout.fs().read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                found.missing += 1;
                let detail = "missing".to_owned();
                found.incidents.push(Incident::Rebuilt { file: path, detail });
                continue;
            }
            Err(source) => return Err(OpenError::Io { path, source }),
        };
        match Catalog::decode(&bytes) {
            Ok(catalog) => {
                found.differ |= found.newest.as_ref().is_some_and(|newest| *newest != catalog);
                if found.newest.as_ref().is_none_or(|n| n.checkpoint < catalog.checkpoint) {
                    found.newest = Some(catalog);
                }
            }
            Err(fault @ HeaderFault::Newer { .. }) => return Err(fault.into_open_error(&path)),
            Err(HeaderFault::Damaged(detail)) => {
                found.damaged.push((path.clone(), bytes));
                let detail = detail.to_owned();
                found.incidents.push(Incident::Rebuilt { file: path, detail });
            }
        }
    }
    Ok(found)
}

/// Returns `true` if the folder has files that only a catalog could explain.
fn has_data(layout: &Layout) -> Result<bool, OpenError> {
    let has_files = |folder: &Path| match layout.fs().list(folder) {
        Ok(names) => Ok(!names.is_empty()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(OpenError::Io { path: folder.to_owned(), source }),
    };
    Ok(has_files(&layout.wal())? || has_files(&layout.topics())?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::encoding::tests::catalog;
    use super::*;

    #[test]
    fn repairs_one_damaged_copy_and_fails_if_both_are() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::new(folder.path().to_owned());
        assert!(Catalog::load(&layout).unwrap().is_none());
        layout.create_folders().unwrap();
        catalog().store(&layout).unwrap();
        assert_eq!(Catalog::load(&layout).unwrap(), Some((catalog(), vec![])));
        fs::write(layout.catalog(), b"x").unwrap();
        let (loaded, incidents) = Catalog::load(&layout).unwrap().unwrap();
        assert_eq!((loaded, incidents.len()), (catalog(), 1));
        assert!(layout.quarantine().join("catalog.from-0").exists());
        // Both copies are intact again, also after a crash between writing the two.
        assert_eq!(Catalog::load(&layout).unwrap(), Some((catalog(), vec![])));
        let older = fs::read(layout.catalog_mirror()).unwrap();
        let newer = Catalog { checkpoint: 9, ..catalog() };
        newer.store(&layout).unwrap();
        fs::write(layout.catalog_mirror(), older).unwrap();
        assert_eq!(Catalog::load(&layout).unwrap(), Some((newer.clone(), vec![])));
        fs::remove_file(layout.catalog()).unwrap();
        assert_eq!(Catalog::load(&layout).unwrap().unwrap().0, newer);
        fs::write(layout.catalog(), b"x").unwrap();
        fs::write(layout.catalog_mirror(), b"x").unwrap();
        assert!(matches!(Catalog::load(&layout), Err(OpenError::Damaged { .. })));
    }

    #[test]
    fn rejects_data_without_a_catalog() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::new(folder.path().to_owned());
        layout.create_folders().unwrap();
        fs::write(layout.wal_file(1), b"x").unwrap();
        assert!(matches!(Catalog::load(&layout), Err(OpenError::Damaged { .. })));
    }
}
