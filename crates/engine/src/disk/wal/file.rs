//! One file of the write-ahead log.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice};
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use rustix::fs::{Advice, FallocateFlags, SeekFrom};
use rustix::io::Errno;

use crate::disk::file_header::{self, HEADER_BYTES, WAL};
use crate::disk::layout::{Layout, sync_folder};
use crate::disk::segment::reader::read_what_is_there;
use crate::disk::storage_faults::StorageFaults;

/// One file of the write-ahead log. Readers hold it open while it is moved into segments.
#[derive(Debug)]
pub(crate) struct WalFile {
    pub(crate) number: u64,
    pub(crate) path: PathBuf,
    file: File,
    faults: Arc<StorageFaults>,
    /// Whether the folder durably names it.
    named: AtomicBool,
    /// Whether all of it is durable elsewhere.
    moved: AtomicBool,
}

/// The operating system takes so many parts in one write.
const MOST_PARTS: usize = 1024;

impl WalFile {
    /// Makes the file `number`, with room for `bytes`. The first sync makes its name durable, too.
    ///
    /// The room is taken ahead: a sync then has no file length to write as well, and a full disk
    /// shows here rather than in the middle of a batch.
    pub(crate) fn create(
        layout: &Layout,
        number: u64,
        bytes: u64,
        faults: Arc<StorageFaults>,
    ) -> io::Result<Self> {
        let made = Self::make(layout, number, bytes, faults);
        if made.is_err() {
            // Half a header must not look like damage later. What cannot be removed is made anew.
            let _ = fs::remove_file(layout.wal_file(number));
        }
        made
    }

    fn make(
        layout: &Layout,
        number: u64,
        bytes: u64,
        faults: Arc<StorageFaults>,
    ) -> io::Result<Self> {
        let path = layout.wal_file(number);
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path)?;
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes) {
            // A filesystem that cannot take room ahead works as well, only slower.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::FBIG) => {}
            Err(error) => return Err(error.into()),
        }
        let wal = Self::of(number, path, file, faults);
        wal.write_at(0, &[&file_header::encode(WAL, number)])?;
        Ok(wal)
    }

    pub(crate) fn open(
        layout: &Layout,
        number: u64,
        faults: Arc<StorageFaults>,
    ) -> io::Result<Self> {
        let path = layout.wal_file(number);
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        Ok(Self::of(number, path, file, faults))
    }

    fn of(number: u64, path: PathBuf, file: File, faults: Arc<StorageFaults>) -> Self {
        let (named, moved) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { number, path, file, faults, named, moved }
    }

    /// Where the first frame begins.
    pub(crate) const fn first_frame_offset() -> u64 {
        HEADER_BYTES as u64
    }

    /// Writes `parts` one behind the other.
    pub(crate) fn write_at(&self, mut offset: u64, parts: &[&[u8]]) -> io::Result<()> {
        let wanted = parts.iter().map(|part| part.len()).sum();
        let admitted = self.faults.admit(wanted);
        if admitted < wanted {
            self.file.write_all_at(&parts.concat()[..admitted], offset)?;
            return Err(StorageFaults::full());
        }
        let mut slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let mut rest = &mut slices[..];
        while !rest.is_empty() {
            let part_count = rest.len().min(MOST_PARTS);
            let written = match rustix::io::pwritev(&self.file, &rest[..part_count], offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => written,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            offset += written as u64;
            IoSlice::advance_slices(&mut rest, written);
        }
        Ok(())
    }

    /// Writes zeros over room that was taken ahead, and has the operating system begin with it at
    /// once. It reads as zeros anyway: where this fails, nothing is lost but some time.
    pub(crate) fn clear(&self, from: u64, to: u64) {
        static ZEROS: [u8; 16 << 10] = [0; 16 << 10];
        let mut offset = from;
        while offset < to {
            let bytes = ZEROS.len().min(usize::try_from(to - offset).unwrap_or(ZEROS.len()));
            if self.file.write_all_at(&ZEROS[..bytes], offset).is_err() {
                return;
            }
            offset += bytes as u64;
        }
        // The one call that starts writing without waiting for it: it asks to forget what is
        // written, and nothing is yet.
        let length = NonZeroU64::new(to.saturating_sub(from));
        let _ = rustix::fs::fadvise(&self.file, from, length, Advice::DontNeed);
    }

    /// Cuts the file off at `offset`, together with room taken ahead.
    pub(crate) fn cut(&self, offset: u64) -> io::Result<()> {
        self.file.set_len(offset)
    }

    /// Makes what was written durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.faults.before_sync()?;
        self.file.sync_data()?;
        if !self.named.load(Ordering::Relaxed) {
            sync_folder(self.path.parent().unwrap_or(&self.path))?;
            self.named.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Says that all of it is durable elsewhere: nobody has to sync it any more.
    pub(crate) fn set_moved(&self) {
        self.moved.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_moved(&self) -> bool {
        self.moved.load(Ordering::SeqCst)
    }

    /// Exactly `bytes` bytes at `offset`.
    pub(crate) fn read_at(&self, offset: u64, bytes: usize) -> io::Result<Bytes> {
        let read = read_what_is_there(&self.file, offset, bytes)?;
        if read.len() < bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(read)
    }

    /// Where all that was ever written ends. Behind it there may be room taken ahead; reading that
    /// would be slow, and make the operating system take it for written.
    pub(crate) fn end_of_data(&self) -> io::Result<u64> {
        end_of_data(&self.file, self.file.metadata()?.len())
    }

    /// Reads from `from` to `to` into `buffer`.
    pub(crate) fn read_range(&self, from: u64, to: u64, buffer: &mut Vec<u8>) -> io::Result<()> {
        let bytes = usize::try_from(to.saturating_sub(from)).map_err(io::Error::other)?;
        buffer.resize(bytes, 0);
        self.read_exact(from, buffer)
    }

    /// Fills `room` with what is at `offset`.
    pub(crate) fn read_exact(&self, offset: u64, room: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(room, offset)
    }
}

/// Where the last data of a file of `length` ends. Room that was taken ahead and never written is
/// a hole behind it.
fn end_of_data(file: &File, length: u64) -> io::Result<u64> {
    let mut end = 0;
    while end < length {
        match rustix::fs::seek(file, SeekFrom::Data(end)) {
            Ok(data) => end = rustix::fs::seek(file, SeekFrom::Hole(data))?,
            Err(Errno::NXIO) => return Ok(end),
            // Not every filesystem tells holes; then all of it counts.
            Err(Errno::INVAL) => return Ok(length),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(end.min(length))
}

/// Copies what is about to be cut off or given up into quarantine.
pub(crate) fn keep_copy(
    layout: &Layout,
    original: &Path,
    offset: u64,
    bytes: &[u8],
) -> io::Result<PathBuf> {
    let name = original.file_name().unwrap_or_default().to_string_lossy();
    fs::create_dir_all(layout.quarantine())?;
    let copy = layout.quarantine().join(format!("{name}.from-{offset}"));
    let mut file = File::create(&copy)?;
    io::Write::write_all(&mut file, bytes)?;
    file.sync_all()?;
    sync_folder(&layout.quarantine())?;
    Ok(copy)
}
