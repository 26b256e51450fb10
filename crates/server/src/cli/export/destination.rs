//! Where exported lines go: a file, or standard output.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use prombus_proto::Topic;
use tokio::task::spawn_blocking;

use super::begun_file::BegunFile;
use crate::cli::stored_line::StoredLine;

pub(super) enum Destination {
    Stdout {
        is_open: bool,
    },
    /// Nothing, until there is something to write: a refused export leaves no file behind.
    File {
        path: PathBuf,
        file: Option<Arc<File>>,
    },
}

impl Destination {
    /// Looks at what is there already; the last line of it, where an export is resumed.
    pub(super) fn prepare(
        output: Option<PathBuf>,
        resume: bool,
        topic: &Topic,
    ) -> Result<(Self, Option<StoredLine>), String> {
        let Some(path) = output else { return Ok((Self::Stdout { is_open: false }, None)) };
        let begun = if resume { BegunFile::open(&path, topic)? } else { None };
        match begun {
            Some(BegunFile { file, last }) => {
                Ok((Self::File { path, file: Some(Arc::new(file)) }, last))
            }
            None if !resume && path.exists() => Err(exists(&path)),
            None => Ok((Self::File { path, file: None }, None)),
        }
    }

    /// Creates the file, if there is to be one and is not yet.
    pub(super) fn open(&mut self) -> Result<(), String> {
        match self {
            Self::Stdout { is_open } => *is_open = true,
            Self::File { file: Some(_), .. } => {}
            Self::File { path, file } => {
                let created = OpenOptions::new().write(true).create_new(true).open(&*path);
                let created = created.map_err(|error| match error.kind() {
                    io::ErrorKind::AlreadyExists => exists(path),
                    _ => format!("{} cannot be written: {error}", path.display()),
                })?;
                lock(path, &created)?;
                *file = Some(Arc::new(created));
            }
        }
        Ok(())
    }

    /// Writes away from the thread that reads.
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

    /// All is written; a file is on stable storage then, and its name, too.
    pub(super) async fn finish(&self) -> io::Result<()> {
        let Self::File { path, file: Some(file) } = self else { return Ok(()) };
        let (path, file) = (path.clone(), Arc::clone(file));
        let syncing = spawn_blocking(move || {
            file.sync_all()?;
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
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

    pub(super) fn is_a_terminal(&self) -> bool {
        matches!(self, Self::Stdout { .. }) && io::stdout().is_terminal()
    }
}

fn exists(path: &Path) -> String {
    let path = path.display();
    format!("{path} exists already: --resume goes on with it, or choose another file")
}

/// Two that write to one file would mix their lines.
pub(super) fn lock(path: &Path, file: &File) -> Result<(), String> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => {
            Err(format!("{} is being written by another export", path.display()))
        }
        // Not every file system has locks.
        Err(TryLockError::Error(_)) => Ok(()),
    }
}
