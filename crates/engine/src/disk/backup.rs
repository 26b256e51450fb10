//! Backups of a running store.
//!
//! A backup is the store as of one moment between two frames: the catalog of the last checkpoint, the files
//! that it names, and the write-ahead log up to that moment. Restoring it is an ordinary start after a
//! crash. None of these files changes below the length that the catalog gives, so nothing has to stop: they
//! only must not be removed before they are read.
//!
//! - `pins`: keeps them until then
//! - `source`: reads, checks and encodes them
//! - `archive`: the format
//! - [`restore`]: turns a backup into a store

pub(crate) mod archive;
pub(crate) mod pins;
pub(crate) mod restore;
pub(crate) mod source;

use std::path::Path;
use std::{fs, io, thread};

use thiserror::Error;
use tokio::sync::mpsc;

pub use self::archive::reader::ArchiveError;
pub use self::restore::{RestoreError, RestoreStage, restore};

use self::archive::reader::{ArchiveReader, Item};
use self::pins::{MAX_PINS, Pin, TooManyPins};
use self::source::BackupSource;
use super::verify::archive::{OnlyCheck, read_archive};
use super::verify::report::{Fault, Report};
use crate::Unavailable;

/// What a backup does at a damaged file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDamage {
    /// It fails, and names the file.
    Stop,
    /// It contains the file as it is, and records that it is damaged.
    Include,
}

/// Why there is no backup, or no complete one.
#[derive(Debug, Error)]
pub enum BackupError {
    /// The engine has no backups. Says what to use instead.
    #[error("{0}")]
    Unsupported(&'static str),
    /// Too many backups are running.
    #[error("{MAX_PINS} backups are running already; try again when one has ended")]
    TooMany,
    /// A file of the store is damaged.
    #[error("{0}; a backup has to be asked to include damaged files")]
    Damaged(Fault),
    /// The disk is full, and the backup was in the way.
    #[error(
        "the disk is full, and the backup kept {0} bytes of removed files from being freed; it was given \
         up"
    )]
    Full(u64),
    /// The engine cannot serve the call at all.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// An operation of the file system failed.
    #[error("{file}: {source}")]
    Io {
        /// The name of the file below the data folder.
        file: String,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl From<TooManyPins> for BackupError {
    fn from(_: TooManyPins) -> Self {
        Self::TooMany
    }
}

/// A backup that is being taken. Dropping it ends it.
#[derive(Debug)]
pub struct Backup {
    chunks: mpsc::Receiver<BackupChunk>,
    files: u64,
    bytes: u64,
}

/// A part of a backup.
#[derive(Debug)]
pub enum BackupChunk {
    /// The next bytes.
    Bytes(Vec<u8>),
    /// It cannot be completed. The last bytes before this say so as well.
    Failed(BackupError),
    /// It is complete.
    Complete,
}

/// How many chunks wait for their reader.
const CHUNKS_AHEAD: usize = 1;
/// The memory that a backup takes beside the chunks that were taken from it: what is read, the same
/// compressed, what waits to be checked, and the chunks that nobody took yet.
pub const WORKING_BYTES: usize = 6 << 20;
/// The scheduling priority of the thread: commits come first.
const NICENESS: i32 = 10;

impl Backup {
    /// Starts a thread that reads the files of `pin`. It waits while nobody takes what it has read.
    pub(crate) fn start(pin: Pin, on_damage: OnDamage) -> Result<Self, BackupError> {
        let mut source = BackupSource::new(pin, on_damage)?;
        let (files, bytes) = (source.files(), source.bytes());
        let (sender, chunks) = mpsc::channel(CHUNKS_AHEAD);
        let run = move || {
            // On Linux this affects only the calling thread. An error is harmless.
            let _ = rustix::process::setpriority_process(None, NICENESS);
            loop {
                let chunk = source.next_chunk();
                let is_last = !matches!(chunk, BackupChunk::Bytes(_));
                // The receiver may have been dropped.
                if sender.blocking_send(chunk).is_err() || is_last {
                    return;
                }
            }
        };
        let spawned = thread::Builder::new().name("prombus-backup".to_owned()).spawn(run);
        let failed = |source| BackupError::Io { file: "a thread".to_owned(), source };
        spawned.map_err(failed)?;
        Ok(Self { chunks, files, bytes })
    }

    /// How many files it contains.
    #[must_use]
    pub const fn files(&self) -> u64 {
        self.files
    }

    /// The size of these files. The backup is compressed.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns what comes next. Nothing comes after [`BackupChunk::Complete`] or
    /// [`BackupChunk::Failed`]. Cancel-safe.
    pub async fn next(&mut self) -> BackupChunk {
        let chunk = self.chunks.recv().await;
        chunk.unwrap_or(BackupChunk::Failed(Unavailable::Closed.into()))
    }
}

/// What a backup contains, by its own account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackupSummary {
    /// How many files.
    pub files: u64,
    /// Their size.
    pub bytes: u64,
    /// The size of the backup.
    pub compressed_bytes: u64,
    /// When it was taken, in Unix milliseconds.
    pub moment: u64,
    /// The damaged files in it.
    pub recorded: Vec<Fault>,
}

/// Reads a backup to its end and checks that it arrived as it was sent. Whether the files of the store were
/// intact before that is what the server checked; [`verify_backup`] checks it again. `progress` gets the
/// bytes of content so far, and in total.
///
/// # Errors
///
/// If it is not complete or not intact.
pub fn check_backup(
    source: impl io::Read,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<BackupSummary, ArchiveError> {
    let mut reader = ArchiveReader::open(source)?;
    let mut recorded = Vec::new();
    loop {
        match reader.next()? {
            Item::End => break,
            Item::Damaged { name, detail } => {
                recorded.push(Fault { file: name.to_owned(), detail: detail.to_owned() });
            }
            Item::File { .. } | Item::Content(_) | Item::FileEnd => {}
        }
        progress(reader.content_bytes(), reader.header.bytes);
    }
    let header = reader.header;
    Ok(BackupSummary {
        files: header.files,
        bytes: header.bytes,
        compressed_bytes: reader.offset(),
        moment: header.moment,
        recorded,
    })
}

/// Checks every checksum of a backup, and those of the files in it. `progress` gets the bytes of content so
/// far, and in total.
///
/// # Errors
///
/// If it is not a backup, not complete, or not as it was written. Damage in the files of the store is in the
/// report.
pub fn verify_backup(
    path: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Report, ArchiveError> {
    let source = io::BufReader::with_capacity(1 << 18, fs::File::open(path)?);
    read_archive(source, &mut OnlyCheck, progress)
}
