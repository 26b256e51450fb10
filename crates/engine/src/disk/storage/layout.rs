//! The layout of the data folder.
//!
//! ```text
//! LOCK                        locked by the process that uses the folder
//! reserve                     space set aside for trims
//! catalog, catalog.mirror     topics and their segments as of some checkpoint, in two copies
//! edits/N.edit, N.mirror      what each later checkpoint changed, in two copies
//! wal/N.wal                   the write-ahead log; the highest number is the newest file
//! topics/NAME/SEQ.seg, .idx   a topic's segments, each with its sparse index
//! packs/N.pack                small segments of many topics
//! ids/N.ids                   sorted runs of hashed event ids
//! state/N.kv                  sorted runs of the keyed state
//! backup/N.held               removed files that a running backup still reads
//! quarantine/                 damaged files and bytes; the engine never deletes anything here
//! ```

use std::io;
use std::path::{Path, PathBuf};

use prombus_proto::{Seq, Topic};

use super::file_system::FileSystem;
use crate::disk::segment::{Segment, SegmentContent};

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
        let folders = [
            self.edits(),
            self.wal(),
            self.topics(),
            self.packs(),
            self.ids(),
            self.state(),
            self.held(),
            self.quarantine(),
        ];
        folders.iter().try_for_each(|folder| self.fs.create_folder(folder))
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

    pub(crate) fn edits(&self) -> PathBuf {
        self.root.join("edits")
    }

    /// The two copies of the edit with this number.
    pub(crate) fn edit_copies(&self, number: u64) -> [PathBuf; 2] {
        ["edit", "mirror"].map(|extension| self.edits().join(format!("{number:020}.{extension}")))
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

    /// The file that contains `segment`.
    pub(crate) fn file_of(&self, topic: &Topic, segment: &Segment) -> PathBuf {
        match segment.content {
            SegmentContent::Packed { pack, .. } => self.pack(pack),
            SegmentContent::Records | SegmentContent::Frames { .. } => {
                self.segment(topic, segment.first)
            }
        }
    }

    pub(crate) fn packs(&self) -> PathBuf {
        self.root.join("packs")
    }

    pub(crate) fn pack(&self, number: u64) -> PathBuf {
        self.packs().join(format!("{number:020}.pack"))
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

    pub(crate) fn held(&self) -> PathBuf {
        self.root.join("backup")
    }

    pub(crate) fn held_file(&self, number: u64) -> PathBuf {
        self.held().join(format!("{number:020}.held"))
    }

    /// Marks a folder into which a restore is not finished.
    pub(crate) fn restoring(&self) -> PathBuf {
        self.root.join("RESTORING")
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
