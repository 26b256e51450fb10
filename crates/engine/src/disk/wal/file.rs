//! One file of the write-ahead log.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice};
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use rustix::fs::{Advice, FallocateFlags, SeekFrom};
use rustix::io::Errno;

use crate::disk::storage::faults::StorageFaults;
use crate::disk::storage::file_header::{self, HEADER_BYTES, WAL};
use crate::disk::storage::file_io::{read_available, sync_folder};
use crate::disk::storage::layout::Layout;

/// One file of the write-ahead log. Readers keep it open while it is checkpointed.
#[derive(Debug)]
pub(crate) struct WalFile {
    pub(crate) number: u64,
    pub(crate) path: PathBuf,
    file: File,
    faults: Arc<StorageFaults>,
    /// Whether its folder was synced after it was created.
    folder_synced: AtomicBool,
    /// Whether a checkpoint has made all of it durable elsewhere.
    checkpointed: AtomicBool,
}

/// `IOV_MAX`: the most slices that one `pwritev` accepts.
const MAX_SLICES: usize = 1024;

impl WalFile {
    /// Creates the file `number` and preallocates `bytes`. The first sync makes its name durable.
    ///
    /// With preallocated space a sync does not have to write the file length, and a full disk shows
    /// up here instead of in the middle of a batch.
    pub(crate) fn create(
        layout: &Layout,
        number: u64,
        bytes: u64,
        faults: Arc<StorageFaults>,
    ) -> io::Result<Self> {
        let created = Self::try_create(layout, number, bytes, faults);
        if created.is_err() {
            // A partial header must not look like damage later. If the file cannot be removed, the
            // next attempt truncates it.
            let _ = fs::remove_file(layout.wal_file(number));
        }
        created
    }

    fn try_create(
        layout: &Layout,
        number: u64,
        bytes: u64,
        faults: Arc<StorageFaults>,
    ) -> io::Result<Self> {
        let path = layout.wal_file(number);
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path)?;
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes) {
            // Without preallocation everything works, only slower.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::FBIG) => {}
            Err(error) => return Err(error.into()),
        }
        let wal = Self::new(number, path, file, faults);
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
        Ok(Self::new(number, path, file, faults))
    }

    fn new(number: u64, path: PathBuf, file: File, faults: Arc<StorageFaults>) -> Self {
        let (folder_synced, checkpointed) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { number, path, file, faults, folder_synced, checkpointed }
    }

    pub(crate) const fn first_frame_offset() -> u64 {
        HEADER_BYTES as u64
    }

    /// Writes `parts` one after the other, starting at `offset`.
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
            let slice_count = rest.len().min(MAX_SLICES);
            let written = match rustix::io::pwritev(&self.file, &rest[..slice_count], offset) {
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

    /// Writes zeros over preallocated space and makes the operating system start writing them back.
    /// The space reads as zeros anyway, so a failure costs nothing but time.
    pub(crate) fn zero(&self, from: u64, to: u64) {
        static ZEROS: [u8; 16 << 10] = [0; 16 << 10];
        let mut offset = from;
        while offset < to {
            let bytes = ZEROS.len().min(usize::try_from(to - offset).unwrap_or(ZEROS.len()));
            if self.file.write_all_at(&ZEROS[..bytes], offset).is_err() {
                return;
            }
            offset += bytes as u64;
        }
        // `POSIX_FADV_DONTNEED` is the one call that starts write-back without waiting for it: it
        // asks to drop the pages, and these are still dirty.
        let length = NonZeroU64::new(to.saturating_sub(from));
        let _ = rustix::fs::fadvise(&self.file, from, length, Advice::DontNeed);
    }

    /// Truncates the file at `offset`, preallocated space included.
    pub(crate) fn truncate(&self, offset: u64) -> io::Result<()> {
        self.file.set_len(offset)
    }

    /// Makes everything written so far durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.faults.before_sync()?;
        self.file.sync_data()?;
        if !self.folder_synced.load(Ordering::Relaxed) {
            sync_folder(self.path.parent().unwrap_or(&self.path))?;
            self.folder_synced.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Records that everything in it is durable elsewhere, so that it needs no further sync.
    pub(crate) fn mark_checkpointed(&self) {
        self.checkpointed.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_checkpointed(&self) -> bool {
        self.checkpointed.load(Ordering::SeqCst)
    }

    /// Reads exactly `bytes` bytes at `offset`.
    pub(crate) fn read_at(&self, offset: u64, bytes: usize) -> io::Result<Bytes> {
        let read = read_available(&self.file, offset, bytes)?;
        if read.len() < bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(read)
    }

    /// Returns the offset up to which the file was ever written. Preallocated space after it is not
    /// read: that would be slow, and some filesystems would then report it as data.
    pub(crate) fn end_of_data(&self) -> io::Result<u64> {
        end_of_data(&self.file, self.file.metadata()?.len())
    }

    /// Reads from `from` to `to` into `buffer`.
    pub(crate) fn read_range(&self, from: u64, to: u64, buffer: &mut Vec<u8>) -> io::Result<()> {
        let bytes = usize::try_from(to.saturating_sub(from)).map_err(io::Error::other)?;
        buffer.resize(bytes, 0);
        self.read_exact(from, buffer)
    }

    /// Fills `buffer` with the bytes at `offset`.
    pub(crate) fn read_exact(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }
}

/// Returns the end of the last data in a file of `length`. Preallocated space that was never written
/// is a hole after it.
fn end_of_data(file: &File, length: u64) -> io::Result<u64> {
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
