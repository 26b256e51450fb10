//! What a check of a store or of a backup found.

use std::fmt;

use super::content::{ContentFault, Counted};
use crate::disk::storage::store_file::StoreFile;

/// What a check of a store or of a backup found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What is there, by kind.
    pub kinds: Vec<KindTotals>,
    /// What is damaged or missing. At most the first damage of each file is found.
    pub faults: Vec<Fault>,
    /// What was damaged or missing already when the backup was taken.
    pub recorded: Vec<Fault>,
}

/// The files of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindTotals {
    /// Their kind.
    pub kind: FileKindName,
    /// How many there are.
    pub files: u64,
    /// Their size.
    pub bytes: u64,
    /// The events, topics or entries in them.
    pub items: u64,
}

/// A kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileKindName {
    /// The catalog, with its copies and edits. Its items are topics.
    Catalog,
    /// The write-ahead log. Its items are events.
    Log,
    /// Segments in files of their own. Their items are events.
    Segments,
    /// Segments that share files. Their items are events.
    Packs,
    /// Sparse indexes of segments. Their items are entries.
    Indexes,
    /// Sorted runs of ids. Their items are entries.
    Ids,
    /// Sorted runs of the keyed state. Their items are entries.
    State,
}

impl FileKindName {
    /// The name for people, in the plural.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Catalog => "catalog",
            Self::Log => "log",
            Self::Segments => "segments",
            Self::Packs => "packs",
            Self::Indexes => "indexes",
            Self::Ids => "ids",
            Self::State => "state",
        }
    }

    /// What its items are.
    #[must_use]
    pub const fn items(self) -> &'static str {
        match self {
            Self::Catalog => "topics",
            Self::Log | Self::Segments | Self::Packs => "events",
            Self::Indexes | Self::Ids | Self::State => "entries",
        }
    }

    pub(crate) const fn of(file: &StoreFile) -> Self {
        match file {
            StoreFile::Wal(_) => Self::Log,
            StoreFile::Pack(_) => Self::Packs,
            StoreFile::StateRun(_) => Self::State,
            StoreFile::IdRun(_) => Self::Ids,
            StoreFile::Segment(..) => Self::Segments,
            StoreFile::SparseIndex(..) => Self::Indexes,
        }
    }
}

/// A damaged or missing file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The name of the file below the data folder.
    pub file: String,
    /// What is wrong with it.
    pub detail: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file, self.detail)
    }
}

impl Report {
    /// Returns `true` if nothing is damaged or missing.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        self.faults.is_empty() && self.recorded.is_empty()
    }

    /// The size of everything.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.bytes).sum()
    }

    pub(crate) fn add(&mut self, kind: FileKindName, files: u64, bytes: u64, items: u64) {
        let at = self.kinds.iter().position(|totals| totals.kind >= kind);
        let at = at.unwrap_or(self.kinds.len());
        if self.kinds.get(at).is_none_or(|totals| totals.kind != kind) {
            self.kinds.insert(at, KindTotals { kind, files: 0, bytes: 0, items: 0 });
        }
        let totals = &mut self.kinds[at];
        totals.files += files;
        totals.bytes += bytes;
        totals.items += items;
    }

    /// Adds a file that was checked.
    pub(crate) fn add_checked(
        &mut self,
        file: &StoreFile,
        bytes: u64,
        checked: &Result<Counted, ContentFault>,
    ) {
        let counted = checked.as_ref().copied().unwrap_or_default();
        self.add(FileKindName::of(file), 1, bytes, counted.events + counted.entries);
        if let Err(fault) = checked {
            self.fault(file, fault.to_string());
        }
    }

    pub(crate) fn fault(&mut self, file: &impl ToString, detail: impl Into<String>) {
        self.faults.push(Fault { file: file.to_string(), detail: detail.into() });
    }
}
