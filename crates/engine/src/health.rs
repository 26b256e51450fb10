//! How an engine is, and what it found.

use std::fmt;
use std::path::PathBuf;

use prombus_proto::{Seq, Topic};

/// How an engine is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Whether it takes commits.
    pub condition: Condition,
    /// What it found damaged or repaired since it was opened, oldest first.
    pub incidents: Vec<Incident>,
}

/// Whether an engine takes commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It does.
    Healthy,
    /// The storage is full; it goes on by itself when there is room.
    Full(String),
    /// A sync failed; it has to be restarted.
    Poisoned(String),
    /// It was closed.
    Closed,
}

/// Something that was not as it should be. Nothing of it was deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incident {
    /// A crash left an unfinished batch at the end of the log. It was cut off, after a copy.
    TornTail {
        /// The log file.
        file: PathBuf,
        /// Where the last whole batch ends.
        kept_bytes: u64,
        /// How many bytes were cut off.
        cut_bytes: u64,
        /// Where the copy of the cut bytes is.
        copy: PathBuf,
    },
    /// Events that cannot be read back. Reading them is an error; the rest is readable.
    DamagedEvents {
        /// Their topic.
        topic: Topic,
        /// The first that cannot be read.
        first: Seq,
        /// The last that cannot be read.
        last: Seq,
        /// The file they are in.
        file: PathBuf,
        /// What is wrong.
        detail: String,
    },
    /// A part of a log file that cannot be told apart. Which events it held shows where positions
    /// are missing; those are reported as damaged events.
    DamagedLog {
        /// The log file.
        file: PathBuf,
        /// Where it starts.
        offset: u64,
        /// How long it is.
        bytes: u64,
    },
    /// Keyed state that cannot be read back.
    DamagedState {
        /// What is wrong.
        detail: String,
    },
    /// A log file that was damaged lies in quarantine, from an earlier start. Events it lost are
    /// named when they are read; keyed state it lost shows older values.
    InQuarantine {
        /// Where it is. Moved away from there, it is not reported any more.
        file: PathBuf,
    },
    /// A file that only repeats what others hold was damaged; the others are used.
    Rebuilt {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
}

impl fmt::Display for Incident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Incident::TornTail { file, kept_bytes, cut_bytes, copy } => write!(
                f,
                "{} ended in an unfinished batch: {cut_bytes} bytes behind {kept_bytes} were cut \
                 off, a copy is {}",
                file.display(),
                copy.display()
            ),
            Incident::DamagedEvents { topic, first, last, file, detail } => write!(
                f,
                "events {first} to {last} of {topic} cannot be read back from {}: {detail}",
                file.display()
            ),
            Incident::DamagedLog { file, offset, bytes } => write!(
                f,
                "{} is damaged: nothing can be told about {bytes} bytes from {offset} on",
                file.display()
            ),
            Incident::DamagedState { detail } => {
                write!(f, "keyed state cannot be read back: {detail}")
            }
            Incident::InQuarantine { file } => write!(
                f,
                "{} was damaged when it was read: events it lost are named when they are read, \
                 keyed state it lost shows older values",
                file.display()
            ),
            Incident::Rebuilt { file, detail } => write!(
                f,
                "{} is damaged ({detail}); what it repeats is read from elsewhere",
                file.display()
            ),
        }
    }
}
