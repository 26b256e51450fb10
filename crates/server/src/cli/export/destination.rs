//! The destination of exported lines: a file or stdout.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use prombus_proto::Topic;
use tokio::task::spawn_blocking;

use super::resumable_file::ResumableFile;
use crate::cli::event_line::EventLine;

pub(super) enum Destination {
    Stdout {
        is_open: bool,
    },
    File {
        path: PathBuf,
        /// `None` until the first write, so that a rejected export leaves no file behind.
        file: Option<Arc<File>>,
    },
}

impl Destination {
    /// Returns the destination and, when resuming, the last line already written.
    pub(super) fn prepare(
        output: Option<PathBuf>,
        resume: bool,
        topic: &Topic,
    ) -> Result<(Self, Option<EventLine>), String> {
        let Some(path) = output else { return Ok((Self::Stdout { is_open: false }, None)) };
        let resumable = if resume { ResumableFile::open(&path, topic)? } else { None };
        match resumable {
            Some(ResumableFile { file, last }) => {
                Ok((Self::File { path, file: Some(Arc::new(file)) }, last))
            }
            None if !resume && path.exists() => Err(already_exists(&path)),
            None => Ok((Self::File { path, file: None }, None)),
        }
    }

    /// Creates the file unless it is open already.
    pub(super) fn open(&mut self) -> Result<(), String> {
        match self {
            Self::Stdout { is_open } => *is_open = true,
            Self::File { file: Some(_), .. } => {}
            Self::File { path, file } => {
                let created = OpenOptions::new().write(true).create_new(true).open(&*path);
                let created = created.map_err(|error| match error.kind() {
                    io::ErrorKind::AlreadyExists => already_exists(path),
                    _ => format!("cannot write {}: {error}", path.display()),
                })?;
                lock(path, &created)?;
                *file = Some(Arc::new(created));
            }
        }
        Ok(())
    }

    /// Writes on a blocking thread, away from the task that reads.
    pub(super) async fn write(&self, lines: Bytes) -> io::Result<()> {
        let writing = match self {
            Self::Stdout { .. } => spawn_blocking(move || {
                let mut out = io::stdout().lock();
                out.write_all(&lines)?;
                out.flush()
            }),
            Self::File { file, .. } => {
                let file = file.clone().ok_or_else(|| io::Error::other("no file is open"))?;
                spawn_blocking(move || (&*file).write_all(&lines))
            }
        };
        writing.await?
    }

    /// Fsyncs the file and its directory.
    pub(super) async fn finish(&self) -> io::Result<()> {
        let Self::File { path, file: Some(file) } = self else { return Ok(()) };
        let (path, file) = (path.clone(), Arc::clone(file));
        let syncing = spawn_blocking(move || {
            file.sync_all()?;
            let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
            File::open(dir.unwrap_or(Path::new(".")))?.sync_all()
        });
        syncing.await?
    }

    pub(super) fn is_open(&self) -> bool {
        match self {
            Self::Stdout { is_open } => *is_open,
            Self::File { file, .. } => file.is_some(),
        }
    }

    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Self::Stdout { .. } => None,
            Self::File { path, .. } => Some(path),
        }
    }

    pub(super) fn is_terminal(&self) -> bool {
        matches!(self, Self::Stdout { .. }) && io::stdout().is_terminal()
    }
}

fn already_exists(path: &Path) -> String {
    let path = path.display();
    format!("{path} already exists: pass --resume to continue it, or choose another file")
}

/// Locks the file, since two exports to one file would mix their lines.
pub(super) fn lock(path: &Path, file: &File) -> Result<(), String> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => {
            Err(format!("another export is writing to {}", path.display()))
        }
        // Not every file system supports locks.
        Err(TryLockError::Error(_)) => Ok(()),
    }
}
