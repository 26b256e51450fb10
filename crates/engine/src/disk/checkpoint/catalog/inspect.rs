//! Reads the catalog without repairing anything, and tells which of its files are damaged.

use std::io;
use std::path::{Path, PathBuf};

use super::Catalog;
use super::edit::CatalogEdit;
use super::files::edits_after;
use crate::OpenError;
use crate::disk::storage::file_header::HeaderFault;
use crate::disk::storage::layout::Layout;

/// The files of the catalog.
#[derive(Debug, Default)]
pub(crate) struct InspectedCatalog {
    /// `None` if neither copy of something can be read.
    pub(crate) catalog: Option<Catalog>,
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    /// The damaged and missing files, and what is wrong with them.
    pub(crate) faults: Vec<(PathBuf, String)>,
}

impl InspectedCatalog {
    /// Returns `None` if the folder has no catalog at all.
    pub(crate) fn read(layout: &Layout) -> Result<Option<Self>, OpenError> {
        let mut found = Self::default();
        let copies = [layout.catalog(), layout.catalog_mirror()];
        let decode = |bytes: &[u8]| Catalog::decode(bytes).map(|(catalog, _)| catalog);
        let full = found.newest(layout, &copies, decode, |catalog| catalog.checkpoint)?;
        if found.files == 0 {
            return Ok(None);
        }
        let Some(mut catalog) = full else { return Ok(Some(found)) };
        let edits = edits_after(layout, catalog.checkpoint)?;
        for number in edits.iter().copied() {
            let before = found.faults.len();
            let copies = layout.edit_copies(number);
            let edit =
                found.newest(layout, &copies, CatalogEdit::decode, |edit| edit.checkpoint)?;
            let is_next = number == catalog.checkpoint + 1;
            match edit.filter(|edit| is_next && edit.checkpoint == number) {
                Some(edit) => catalog.apply(edit),
                None => {
                    let detail = "the change before it is missing".to_owned();
                    found.faults.push((copies[0].clone(), detail));
                    return Ok(Some(found));
                }
            }
            // A crash leaves one copy of the last edit at worst.
            if edits.last() == Some(&number) {
                let is_missing = |(_, detail): &(PathBuf, String)| detail == MISSING;
                let newer = found.faults.split_off(before);
                found.faults.extend(newer.into_iter().filter(|fault| !is_missing(fault)));
            }
        }
        found.catalog = Some(catalog);
        Ok(Some(found))
    }

    /// Decodes both copies of something and returns the newest.
    fn newest<T>(
        &mut self,
        layout: &Layout,
        copies: &[PathBuf; 2],
        decode: impl Fn(&[u8]) -> Result<T, HeaderFault>,
        number: impl Fn(&T) -> u64,
    ) -> Result<Option<T>, OpenError> {
        let mut newest: Option<T> = None;
        for path in copies {
            let Some(bytes) = self.read_copy(layout, path)? else { continue };
            match decode(&bytes) {
                Ok(found) => {
                    if newest.as_ref().is_none_or(|newest| number(newest) < number(&found)) {
                        newest = Some(found);
                    }
                }
                Err(fault @ HeaderFault::Newer { .. }) => return Err(fault.into_open_error(path)),
                Err(HeaderFault::Damaged(detail)) => {
                    self.faults.push((path.clone(), detail.to_owned()));
                }
            }
        }
        Ok(newest)
    }

    fn read_copy(&mut self, layout: &Layout, path: &Path) -> Result<Option<Vec<u8>>, OpenError> {
        match layout.fs().read(path) {
            Ok(bytes) => {
                self.files += 1;
                self.bytes += bytes.len() as u64;
                Ok(Some(bytes))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.faults.push((path.to_owned(), MISSING.to_owned()));
                Ok(None)
            }
            Err(source) => Err(OpenError::Io { path: path.to_owned(), source }),
        }
    }
}

const MISSING: &str = "it is missing";
