//! The file system under a store: that of the operating system, or in tests a simulated disk.
//!
//! Everything the disk engine does to files goes through here. Outside tests both enums have a single
//! variant, so the seam costs nothing.

#[cfg(test)]
pub(crate) mod simulated;

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, IoSlice, Write};
use std::num::NonZeroU64;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;
#[cfg(test)]
use std::path::PathBuf;
#[cfg(test)]
use std::sync::Arc;

use bytes::Bytes;
use rustix::buffer::spare_capacity;
use rustix::fs::{Advice, FallocateFlags, SeekFrom};
use rustix::io::Errno;

#[cfg(test)]
use self::simulated::{SimulatedDisk, SimulatedFile};
use super::faults::is_damage;
use super::private::{PRIVATE_FILE, PRIVATE_FOLDER};

/// Where the files of a store are.
#[derive(Clone, Debug, Default)]
pub(crate) enum FileSystem {
    #[default]
    Os,
    #[cfg(test)]
    Simulated(Arc<SimulatedDisk>),
}

/// An open file.
#[derive(Debug)]
pub(crate) enum File {
    Os(fs::File),
    #[cfg(test)]
    Simulated(SimulatedFile),
}

/// How to open a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// An existing file, for reading.
    Read,
    /// An existing file, for reading and writing.
    Write,
    /// A file that is created if it does not exist.
    CreateOrWrite,
    /// A new file, or an existing one without its content.
    CreateEmpty,
}

impl FileSystem {
    pub(crate) fn open(&self, path: &Path, access: Access) -> io::Result<File> {
        match self {
            Self::Os => {
                let mut options = OpenOptions::new();
                options.read(true).write(access != Access::Read);
                options.create(matches!(access, Access::CreateOrWrite | Access::CreateEmpty));
                options.truncate(access == Access::CreateEmpty);
                options.mode(PRIVATE_FILE);
                options.open(path).map(File::Os)
            }
            #[cfg(test)]
            Self::Simulated(disk) => disk.open(path, access).map(File::Simulated),
        }
    }

    /// Reads a whole file.
    pub(crate) fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let file = self.open(path, Access::Read)?;
        let bytes = usize::try_from(file.len()?).map_err(io::Error::other)?;
        let mut content = vec![0; bytes];
        file.read_exact_at(&mut content, 0)?;
        Ok(content)
    }

    /// Durably writes a new file, or replaces the content of an existing one. The file's name is
    /// durable once its folder is synced.
    pub(crate) fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let file = self.open(path, Access::CreateEmpty)?;
        file.write_all_at(content, 0)?;
        file.sync_all()
    }

    pub(crate) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        match self {
            Self::Os => fs::rename(from, to),
            #[cfg(test)]
            Self::Simulated(disk) => disk.rename(from, to),
        }
    }

    pub(crate) fn remove_file(&self, path: &Path) -> io::Result<()> {
        match self {
            Self::Os => fs::remove_file(path),
            #[cfg(test)]
            Self::Simulated(disk) => disk.remove_file(path),
        }
    }

    /// Removes a file that may already be gone.
    pub(crate) fn remove_if_exists(&self, path: &Path) -> io::Result<()> {
        match self.remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    pub(crate) fn hard_link(&self, original: &Path, link: &Path) -> io::Result<()> {
        match self {
            Self::Os => fs::hard_link(original, link),
            #[cfg(test)]
            Self::Simulated(disk) => disk.hard_link(original, link),
        }
    }

    /// Creates a folder and those above it, as far as they are missing.
    pub(crate) fn create_folder(&self, path: &Path) -> io::Result<()> {
        match self {
            Self::Os => DirBuilder::new().recursive(true).mode(PRIVATE_FOLDER).create(path),
            #[cfg(test)]
            Self::Simulated(disk) => disk.create_folder(path),
        }
    }

    /// Removes a folder, which has to be empty.
    pub(crate) fn remove_folder(&self, path: &Path) -> io::Result<()> {
        match self {
            Self::Os => fs::remove_dir(path),
            #[cfg(test)]
            Self::Simulated(disk) => disk.remove_folder(path),
        }
    }

    /// Lists the names in a folder, in no particular order. Ignores names that are not UTF-8, which
    /// are not ours.
    pub(crate) fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        match self {
            Self::Os => fs::read_dir(folder)?
                .filter_map(|entry| match entry {
                    Ok(entry) => entry.file_name().into_string().ok().map(Ok),
                    Err(error) => Some(Err(error)),
                })
                .collect(),
            #[cfg(test)]
            Self::Simulated(disk) => disk.list(folder),
        }
    }

    /// Opens a folder in order to sync it later, when there may be no descriptor left.
    pub(crate) fn open_folder(&self, folder: &Path) -> io::Result<OpenFolder> {
        match self {
            Self::Os => fs::File::open(folder).map(OpenFolder::Os),
            #[cfg(test)]
            Self::Simulated(disk) => Ok(OpenFolder::Simulated(Arc::clone(disk), folder.to_owned())),
        }
    }

    /// Makes created, renamed and removed entries of a folder durable.
    pub(crate) fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        match self {
            Self::Os => fs::File::open(folder)?.sync_all(),
            #[cfg(test)]
            Self::Simulated(disk) => disk.sync_folder(folder),
        }
    }

    /// Makes a file or a folder durable.
    pub(crate) fn sync(&self, path: &Path) -> io::Result<()> {
        match self {
            Self::Os => fs::File::open(path)?.sync_all(),
            #[cfg(test)]
            Self::Simulated(disk) => disk.sync(path),
        }
    }
}

/// An open folder.
#[derive(Debug)]
pub(crate) enum OpenFolder {
    Os(fs::File),
    #[cfg(test)]
    Simulated(Arc<SimulatedDisk>, PathBuf),
}

impl OpenFolder {
    /// Makes created, renamed and removed entries durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        match self {
            Self::Os(folder) => folder.sync_all(),
            #[cfg(test)]
            Self::Simulated(disk, folder) => disk.sync_open_folder(folder),
        }
    }

    /// Makes everything on its filesystem durable. Fails if something could not be written since the
    /// folder was opened, or since the last call. Not every filesystem tells.
    pub(crate) fn sync_filesystem(&self) -> io::Result<()> {
        match self {
            Self::Os(folder) => Ok(rustix::fs::syncfs(folder)?),
            #[cfg(test)]
            Self::Simulated(disk, _) => disk.sync_everything(),
        }
    }
}

impl File {
    /// Reads into `buffer` and returns how many bytes there were.
    pub(crate) fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match self {
            Self::Os(file) => file.read_at(buffer, offset),
            #[cfg(test)]
            Self::Simulated(file) => file.read_at(buffer, offset),
        }
    }

    /// Fills `buffer`, or fails with `UnexpectedEof`.
    pub(crate) fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        match self {
            Self::Os(file) => file.read_exact_at(buffer, offset),
            #[cfg(test)]
            Self::Simulated(file) => file.read_exact_at(buffer, offset),
        }
    }

    /// Reads `bytes` bytes at `offset`, or fewer if the file ends before that or the medium is damaged
    /// there. Reading at or past the end is an `UnexpectedEof` error.
    pub(crate) fn read_available(&self, offset: u64, bytes: usize) -> io::Result<Bytes> {
        let mut buffer = Vec::with_capacity(bytes);
        while buffer.len() < bytes {
            // Reads into uninitialized memory: zeroing it took as long as verifying what was read.
            let next = offset + buffer.len() as u64;
            let read = match self {
                Self::Os(file) => rustix::io::pread(file, spare_capacity(&mut buffer), next),
                #[cfg(test)]
                Self::Simulated(file) => file.append_to(&mut buffer, next, bytes),
            };
            match read {
                Ok(0) if buffer.is_empty() => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(0) => break,
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::IO) if !buffer.is_empty() => break,
                Err(error) => return Err(error.into()),
            }
        }
        // The allocator may have returned more capacity than requested.
        buffer.truncate(bytes);
        Ok(Bytes::from(buffer))
    }

    /// Fills `buffer`, with zeros where the file has ended or the medium is damaged. Returns how many
    /// bytes are missing.
    pub(crate) fn read_undamaged_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        const BLOCK_BYTES: usize = 4096;
        let mut missing = 0;
        match self.read_exact_at(buffer, offset) {
            Err(error) if is_damage(&error) => {}
            read => return read.map(|()| 0),
        }
        let mut at = 0;
        while at < buffer.len() {
            let start = offset + at as u64;
            let to_boundary = BLOCK_BYTES - usize::try_from(start).unwrap_or(0) % BLOCK_BYTES;
            let end = buffer.len().min(at + to_boundary);
            match self.read_exact_at(&mut buffer[at..end], start) {
                Ok(()) => {}
                Err(error) if is_damage(&error) => {
                    buffer[at..end].fill(0);
                    missing += end - at;
                }
                Err(error) => return Err(error),
            }
            at = end;
        }
        Ok(missing)
    }

    pub(crate) fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        match self {
            Self::Os(file) => file.write_all_at(bytes, offset),
            #[cfg(test)]
            Self::Simulated(file) => file.write_all_at(bytes, offset),
        }
    }

    /// Writes `slices` one after the other and returns how many bytes were written, which may be
    /// fewer.
    pub(crate) fn write_slices_at(&self, slices: &[IoSlice], offset: u64) -> io::Result<usize> {
        match self {
            Self::Os(file) => Ok(rustix::io::pwritev(file, slices, offset)?),
            #[cfg(test)]
            Self::Simulated(file) => {
                let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
                file.write_all_at(&bytes, offset).map(|()| bytes.len())
            }
        }
    }

    /// Reserves space for `bytes` bytes. Returns `false` if the filesystem cannot do that.
    pub(crate) fn preallocate(&self, bytes: u64) -> io::Result<bool> {
        match self {
            Self::Os(file) => {
                match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
                    Ok(()) => Ok(true),
                    Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::FBIG) => Ok(false),
                    Err(error) => Err(error.into()),
                }
            }
            #[cfg(test)]
            Self::Simulated(file) => file.preallocate(bytes),
        }
    }

    pub(crate) fn set_len(&self, bytes: u64) -> io::Result<()> {
        match self {
            Self::Os(file) => file.set_len(bytes),
            #[cfg(test)]
            Self::Simulated(file) => file.set_len(bytes),
        }
    }

    pub(crate) fn len(&self) -> io::Result<u64> {
        match self {
            Self::Os(file) => Ok(file.metadata()?.len()),
            #[cfg(test)]
            Self::Simulated(file) => file.len(),
        }
    }

    /// Makes the content durable, and the length if a reader needs it.
    pub(crate) fn sync_data(&self) -> io::Result<()> {
        match self {
            Self::Os(file) => file.sync_data(),
            #[cfg(test)]
            Self::Simulated(file) => file.sync(),
        }
    }

    pub(crate) fn sync_all(&self) -> io::Result<()> {
        match self {
            Self::Os(file) => file.sync_all(),
            #[cfg(test)]
            Self::Simulated(file) => file.sync(),
        }
    }

    /// Makes the operating system start to write a range back, without waiting for it.
    pub(crate) fn start_write_back(&self, from: u64, to: u64) {
        match self {
            // `POSIX_FADV_DONTNEED` is the one call that starts write-back without waiting for it:
            // it asks to drop the pages, and these are still dirty.
            Self::Os(file) => {
                let length = NonZeroU64::new(to.saturating_sub(from));
                let _ = rustix::fs::fadvise(file, from, length, Advice::DontNeed);
            }
            #[cfg(test)]
            Self::Simulated(_) => {}
        }
    }

    /// Returns the end of the last data. Preallocated space that was never written is a hole after
    /// it.
    pub(crate) fn end_of_data(&self) -> io::Result<u64> {
        match self {
            Self::Os(file) => end_of_data(file, file.metadata()?.len()),
            #[cfg(test)]
            Self::Simulated(file) => file.len(),
        }
    }
}

fn end_of_data(file: &fs::File, length: u64) -> io::Result<u64> {
    let mut end = 0;
    while end < length {
        match rustix::fs::seek(file, SeekFrom::Data(end)) {
            Ok(data) => end = rustix::fs::seek(file, SeekFrom::Hole(data))?,
            Err(Errno::NXIO) => return Ok(end),
            // The filesystem does not report holes: all of it counts as data.
            Err(Errno::INVAL) => return Ok(length),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(end.min(length))
}

/// Writes a file from an offset to its end.
pub(crate) struct SequentialWriter<'a> {
    file: &'a File,
    offset: u64,
}

impl<'a> SequentialWriter<'a> {
    pub(crate) fn new(file: &'a File) -> Self {
        Self::starting_at(file, 0)
    }

    pub(crate) fn starting_at(file: &'a File, offset: u64) -> Self {
        Self { file, offset }
    }
}

impl Write for SequentialWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_all_at(bytes, self.offset)?;
        self.offset += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
