//! The condition of an engine and the damage it found.

use std::fmt;
use std::path::PathBuf;

use prombus_proto::{Seq, Topic};

/// A snapshot of an engine's condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Whether the engine accepts commits.
    pub condition: Condition,
    /// What was found damaged or repaired since the engine was opened, oldest first.
    pub incidents: Vec<Incident>,
}

/// Whether an engine accepts commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Commits are accepted.
    Healthy,
    /// The storage is full. Commits succeed again as soon as there is room. Carries the cause.
    Full(String),
    /// An fsync failed. The engine must be reopened. Carries the cause.
    Poisoned(String),
    /// The engine was closed.
    Closed,
}

/// Damage that was found, or repaired. Nothing damaged is ever deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incident {
    /// A crash left an incomplete batch at the end of the write-ahead log. It was copied, then cut
    /// off.
    TornTail {
        /// The log file.
        file: PathBuf,
        /// The offset at which the last complete batch ends.
        kept_bytes: u64,
        /// The number of bytes cut off.
        cut_bytes: u64,
        /// The file with a copy of the cut bytes.
        copy: PathBuf,
    },
    /// Events that cannot be read back. Reading them returns an error; all others are readable.
    DamagedEvents {
        /// The topic of the events.
        topic: Topic,
        /// The first damaged event.
        first: Seq,
        /// The last damaged event.
        last: Seq,
        /// The file that contains them.
        file: PathBuf,
        /// What is wrong.
        detail: String,
    },
    /// A part of a log file that cannot be parsed. The events it contained are missing from their
    /// topics and are reported as [`Incident::DamagedEvents`].
    DamagedLog {
        /// The log file.
        file: PathBuf,
        /// The byte offset of the damaged part.
        offset: u64,
        /// The length of the damaged part in bytes.
        bytes: u64,
    },
    /// A part of the keyed state that cannot be read back.
    DamagedState {
        /// What is wrong.
        detail: String,
    },
    /// A damaged log file is in quarantine since an earlier start. Reading an event that it lost
    /// returns an error; state keys that it lost show older values.
    InQuarantine {
        /// The file in quarantine. It is reported until it is moved away.
        file: PathBuf,
    },
    /// A damaged file with redundant contents: the data is read from other files.
    Rebuilt {
        /// The file.
        file: PathBuf,
        /// What is wrong with the file.
        detail: String,
    },
}

impl fmt::Display for Incident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Incident::TornTail { file, kept_bytes, cut_bytes, copy } => write!(
                f,
                "{} ended in an incomplete batch: {cut_bytes} bytes after offset {kept_bytes} were \
                 cut off and copied to {}",
                file.display(),
                copy.display()
            ),
            Incident::DamagedEvents { topic, first, last, file, detail } => write!(
                f,
                "events {first} to {last} of {topic} in {} are damaged: {detail}",
                file.display()
            ),
            Incident::DamagedLog { file, offset, bytes } => write!(
                f,
                "{} is damaged: {bytes} bytes from offset {offset} on cannot be parsed",
                file.display()
            ),
            Incident::DamagedState { detail } => {
                write!(f, "the keyed state is damaged: {detail}")
            }
            Incident::InQuarantine { file } => write!(
                f,
                "{} was damaged and is in quarantine: reading an event that it lost is an error, \
                 state keys that it lost show older values",
                file.display()
            ),
            Incident::Rebuilt { file, detail } => write!(
                f,
                "{} is damaged ({detail}); its contents are redundant and are read from other files",
                file.display()
            ),
        }
    }
}
