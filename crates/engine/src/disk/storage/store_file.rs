//! The names of the files that make up a store, as text and as values.
//!
//! A backup carries the names as text. Whoever reads one goes through [`StoreFile::parse`], which knows no
//! other names, so that no text leads out of the data folder.

use std::fmt;
use std::path::{Path, PathBuf};

use prombus_proto::{Seq, Topic};

use super::layout::Layout;

/// A file that the catalog names, or a file of the write-ahead log. The order is that of a backup: first
/// the files that are removed soonest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum StoreFile {
    Wal(u64),
    Pack(u64),
    StateRun(u64),
    IdRun(u64),
    Segment(Topic, Seq),
    SparseIndex(Topic, Seq),
}

/// The longest name: a topic's, with its folder and the name of a segment.
pub(crate) const MAX_NAME_BYTES: usize = prombus_proto::limits::MAX_NAME_BYTES + 64;

impl StoreFile {
    pub(crate) fn path(&self, layout: &Layout) -> PathBuf {
        match self {
            Self::Wal(number) => layout.wal_file(*number),
            Self::Pack(number) => layout.pack(*number),
            Self::StateRun(number) => layout.state_run(*number),
            Self::IdRun(number) => layout.id_run(*number),
            Self::Segment(topic, first) => layout.segment(topic, *first),
            Self::SparseIndex(topic, first) => layout.sparse_index(topic, *first),
        }
    }

    /// Returns the file that has exactly this name below the data folder.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let parts: Vec<_> = name.split('/').collect();
        let number = |text: &str, extension: &str| -> Option<u64> {
            text.strip_suffix(extension)?.strip_suffix('.')?.parse().ok()
        };
        let found = match parts[..] {
            ["wal", file] => Self::Wal(number(file, "wal")?),
            ["packs", file] => Self::Pack(number(file, "pack")?),
            ["state", file] => Self::StateRun(number(file, "kv")?),
            ["ids", file] => Self::IdRun(number(file, "ids")?),
            ["topics", topic, file] => {
                let topic = Topic::new(topic).ok()?;
                match number(file, "seg") {
                    Some(first) => Self::Segment(topic, Seq(first)),
                    None => Self::SparseIndex(topic, Seq(number(file, "idx")?)),
                }
            }
            _ => return None,
        };
        // Rejects `+1`, missing zeros and whatever else means the same number.
        (found.to_string() == name).then_some(found)
    }

    /// Returns the file at `path`, if it is one of the store.
    pub(crate) fn at(layout: &Layout, path: &Path) -> Option<Self> {
        Self::parse(path.strip_prefix(layout.root()).ok()?.to_str()?)
    }
}

/// The name below the data folder.
impl fmt::Display for StoreFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wal(number) => write!(f, "wal/{number:020}.wal"),
            Self::Pack(number) => write!(f, "packs/{number:020}.pack"),
            Self::StateRun(number) => write!(f, "state/{number:020}.kv"),
            Self::IdRun(number) => write!(f, "ids/{number:020}.ids"),
            Self::Segment(topic, first) => write!(f, "topics/{topic}/{:020}.seg", first.0),
            Self::SparseIndex(topic, first) => write!(f, "topics/{topic}/{:020}.idx", first.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_paths_are_those_of_the_layout() {
        let layout = Layout::new("/data".into());
        let topic = || Topic::new("a.b").unwrap();
        for file in [
            StoreFile::Wal(1),
            StoreFile::Pack(2),
            StoreFile::StateRun(3),
            StoreFile::IdRun(u64::MAX),
            StoreFile::Segment(topic(), Seq(5)),
            StoreFile::SparseIndex(topic(), Seq(6)),
        ] {
            let name = file.to_string();
            assert_eq!(StoreFile::parse(&name), Some(file.clone()), "{name}");
            assert_eq!(file.path(&layout), Path::new("/data").join(&name));
            assert_eq!(StoreFile::at(&layout, &file.path(&layout)), Some(file));
            assert!(name.len() <= MAX_NAME_BYTES);
        }
    }

    #[test]
    fn other_names_are_no_files_of_a_store() {
        let segment = "00000000000000000001.seg";
        for name in [
            "",
            "catalog",
            "LOCK",
            "/etc/passwd",
            "../wal/00000000000000000001.wal",
            "wal/../00000000000000000001.wal",
            "wal/1.wal",
            "wal/+0000000000000000001.wal",
            "wal/00000000000000000001.wal/",
            "wal//00000000000000000001.wal",
            "wal/00000000000000000001.seg",
            "wal/99999999999999999999.wal",
            &format!("topics/../{segment}"),
            &format!("topics/./{segment}"),
            &format!("topics/A/{segment}"),
            &format!("topics/a/../{segment}"),
            &format!("topics/a\\b/{segment}"),
            &format!("topics/a\0/{segment}"),
        ] {
            assert_eq!(StoreFile::parse(name), None, "{name}");
        }
    }
}
