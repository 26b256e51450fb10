//! Where a backup goes: a file, which gets its name at the end, or stdout.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IsTerminal};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

pub(super) enum Target {
    Stdout,
    File {
        path: PathBuf,
        /// The name that it has until it is complete.
        temporary: PathBuf,
        file: File,
        replace: bool,
    },
}

impl Target {
    /// Checks that a backup may go there, before the server is asked for one.
    pub(super) fn prepare(path: PathBuf, replace: bool) -> Result<Self, String> {
        if path.as_os_str() == "-" {
            if io::stdout().is_terminal() {
                return Err("a backup is not for terminals: redirect stdout, or name a file".into());
            }
            return Ok(Self::Stdout);
        }
        if path.is_dir() {
            return Err(format!("{} is a folder: name a file in it", path.display()));
        }
        if path.exists() && !replace {
            return Err(already_exists(&path));
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let temporary = path.with_file_name(format!(".{name}.incomplete-{}", process::id()));
        // It contains everything: nobody else may read it.
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary);
        let file =
            file.map_err(|error| format!("cannot write {}: {error}", temporary.display()))?;
        Ok(Self::File { path, temporary, file, replace })
    }

    pub(super) fn writer(&self) -> io::Result<Box<dyn io::Write + Send>> {
        Ok(match self {
            Self::Stdout => Box::new(io::stdout()),
            Self::File { file, .. } => Box::new(file.try_clone()?),
        })
    }

    /// Gives the file its name, once it is on disk.
    pub(super) fn keep(&self) -> Result<(), String> {
        let Self::File { path, temporary, file, replace } = self else { return Ok(()) };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let named = file.sync_all().and_then(|()| rename(temporary, path, *replace));
        let synced = named.and_then(|()| File::open(folder.unwrap_or(Path::new(".")))?.sync_all());
        synced.map_err(|error| {
            self.discard();
            match error.kind() {
                io::ErrorKind::AlreadyExists => already_exists(path),
                _ => format!("cannot write {}: {error}", path.display()),
            }
        })
    }

    /// Removes what was written.
    pub(super) fn discard(&self) {
        if let Self::File { temporary, .. } = self {
            // It says by its name that it is incomplete.
            let _ = fs::remove_file(temporary);
        }
    }

    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Self::Stdout => None,
            Self::File { path, .. } => Some(path),
        }
    }
}

fn rename(from: &Path, to: &Path, replace: bool) -> io::Result<()> {
    if replace {
        return fs::rename(from, to);
    }
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Not every filesystem can do both at once.
        Err(Errno::INVAL | Errno::NOSYS) if to.exists() => Err(Errno::EXIST.into()),
        Err(Errno::INVAL | Errno::NOSYS) => fs::rename(from, to),
        renamed => Ok(renamed?),
    }
}

fn already_exists(path: &Path) -> String {
    format!("{} already exists: pass --force to replace it, or choose another file", path.display())
}
