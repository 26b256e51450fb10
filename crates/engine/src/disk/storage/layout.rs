//! The layout of the data folder.
//!
//! ```text
//! LOCK                        locked by the process that uses the folder
//! reserve                     space set aside for trims
//! catalog, catalog.mirror     topics and their segments as of the last checkpoint, in two copies
//! wal/N.wal                   the write-ahead log; the highest number is the newest file
//! topics/NAME/SEQ.seg, .idx   a topic's segments, each with its sparse index
//! ids/N.ids                   sorted runs of hashed event ids
//! state/N.kv                  sorted runs of the keyed state
//! quarantine/                 damaged files and bytes; the engine never deletes anything here
//! ```

use std::io;
use std::path::{Path, PathBuf};

use prombus_proto::{Seq, Topic};

use super::file_system::FileSystem;

/// Builds the path of every file in the data folder.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    fs: FileSystem,
    root: PathBuf,
}

impl Layout {
    /// A data folder on the file system of the operating system.
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { fs: FileSystem::Os, root }
    }

    #[cfg(test)]
    pub(crate) fn on(fs: FileSystem, root: PathBuf) -> Self {
        Self { fs, root }
    }

    pub(crate) fn fs(&self) -> &FileSystem {
        &self.fs
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Creates missing folders. They become durable when a catalog is stored.
    pub(crate) fn create_folders(&self) -> io::Result<()> {
        for folder in [self.wal(), self.topics(), self.ids(), self.state(), self.quarantine()] {
            self.fs.create_folder(&folder)?;
        }
        Ok(())
    }

    pub(crate) fn lock(&self) -> PathBuf {
        self.root.join("LOCK")
    }

    pub(crate) fn reserve(&self) -> PathBuf {
        self.root.join("reserve")
    }

    pub(crate) fn catalog(&self) -> PathBuf {
        self.root.join("catalog")
    }

    pub(crate) fn catalog_mirror(&self) -> PathBuf {
        self.root.join("catalog.mirror")
    }

    pub(crate) fn wal(&self) -> PathBuf {
        self.root.join("wal")
    }

    pub(crate) fn wal_file(&self, number: u64) -> PathBuf {
        self.wal().join(format!("{number:020}.wal"))
    }

    pub(crate) fn topics(&self) -> PathBuf {
        self.root.join("topics")
    }

    pub(crate) fn topic(&self, topic: &Topic) -> PathBuf {
        self.topics().join(topic.as_str())
    }

    pub(crate) fn segment(&self, topic: &Topic, first: Seq) -> PathBuf {
        self.topic(topic).join(format!("{:020}.seg", first.0))
    }

    pub(crate) fn sparse_index(&self, topic: &Topic, first: Seq) -> PathBuf {
        self.topic(topic).join(format!("{:020}.idx", first.0))
    }

    pub(crate) fn ids(&self) -> PathBuf {
        self.root.join("ids")
    }

    pub(crate) fn id_run(&self, number: u64) -> PathBuf {
        self.ids().join(format!("{number:020}.ids"))
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.root.join("state")
    }

    pub(crate) fn state_run(&self, number: u64) -> PathBuf {
        self.state().join(format!("{number:020}.kv"))
    }

    pub(crate) fn quarantine(&self) -> PathBuf {
        self.root.join("quarantine")
    }

    /// Lists the numbers of the files `N.extension` in `folder`, ascending. Ignores other files.
    pub(crate) fn numbered(&self, folder: &Path, extension: &str) -> io::Result<Vec<u64>> {
        let mut numbers = Vec::new();
        for name in self.fs.list(folder)? {
            let stem = Path::new(&name).file_stem().and_then(|stem| stem.to_str());
            // Only zero-padded names are ours; a file called `1.wal` is not.
            if let Some(number) = stem.and_then(|stem| stem.parse().ok())
                && name == format!("{number:020}.{extension}")
            {
                numbers.push(number);
            }
        }
        numbers.sort_unstable();
        Ok(numbers)
    }
}
