//! One file of the write-ahead log.

use std::io::{self, IoSlice};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;

use crate::disk::storage::faults::{StorageFaults, is_damage};
use crate::disk::storage::file_header::{self, HEADER_BYTES, WAL};
use crate::disk::storage::file_system::{Access, File, OpenFolder};
use crate::disk::storage::layout::Layout;

/// One file of the write-ahead log. Readers keep it open while it is checkpointed.
#[derive(Debug)]
pub(crate) struct WalFile {
    pub(crate) number: u64,
    pub(crate) path: PathBuf,
    file: File,
    folder: OpenFolder,
    faults: Arc<StorageFaults>,
    /// Whether its folder was synced after it was created.
    folder_synced: AtomicBool,
    /// Whether a checkpoint has made all of it durable elsewhere.
    checkpointed: AtomicBool,
    unreadable_bytes: AtomicU64,
}

/// `IOV_MAX`: the most slices that one `pwritev` accepts.
const MAX_SLICES: usize = 1024;

impl WalFile {
    /// Creates the file `number` and preallocates the end of `bytes`, or as much as there is room for
    /// if that is at least its start. The first sync makes its name durable.
    ///
    /// With preallocated space a sync does not have to write the file length, and a full disk shows
    /// up here instead of in the middle of a batch.
    pub(crate) fn create(
        layout: &Layout,
        number: u64,
        bytes: RangeInclusive<u64>,
        faults: Arc<StorageFaults>,
    ) -> io::Result<Self> {
        let created = Self::try_create(layout, number, bytes, faults);
        if created.is_err() {
            // A partial header must not look like damage later. If the file cannot be removed, the
            // next attempt truncates it.
            let _ = layout.fs().remove_file(&layout.wal_file(number));
        }
        created
    }

    fn try_create(
        layout: &Layout,
        number: u64,
        bytes: RangeInclusive<u64>,
        faults: Arc<StorageFaults>,
    ) -> io::Result<Self> {
        let path = layout.wal_file(number);
        let file = layout.fs().open(&path, Access::CreateEmpty)?;
        preallocate(&file, bytes)?;
        let wal = Self::new(layout, number, file, faults)?;
        wal.write_at(0, &[&file_header::encode(WAL, number)])?;
        Ok(wal)
    }

    pub(crate) fn open(
        layout: &Layout,
        number: u64,
        faults: Arc<StorageFaults>,
    ) -> io::Result<Self> {
        let path = layout.wal_file(number);
        let file = layout.fs().open(&path, Access::Write)?;
        Self::new(layout, number, file, faults)
    }

    fn new(
        layout: &Layout,
        number: u64,
        file: File,
        faults: Arc<StorageFaults>,
    ) -> io::Result<Self> {
        let folder = layout.fs().open_folder(&layout.wal())?;
        let path = layout.wal_file(number);
        let (folder_synced, checkpointed) = (AtomicBool::new(false), AtomicBool::new(false));
        let unreadable_bytes = AtomicU64::new(0);
        Ok(Self {
            number,
            path,
            file,
            folder,
            faults,
            folder_synced,
            checkpointed,
            unreadable_bytes,
        })
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
            let written = match self.file.write_slices_at(&rest[..slice_count], offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => written,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
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
        self.file.start_write_back(from, to);
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
            self.folder.sync()?;
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

    /// Reads `bytes` bytes at `offset`. Whatever cannot be read is zeros, which no record passes for.
    pub(crate) fn read_at(&self, offset: u64, bytes: usize) -> io::Result<Bytes> {
        match self.file.read_available(offset, bytes) {
            Ok(read) if read.len() == bytes => return Ok(read),
            Err(error) if !is_damage(&error) => return Err(error),
            Ok(_) | Err(_) => {}
        }
        let mut buffer = vec![0; bytes];
        self.file.read_undamaged_at(&mut buffer, offset)?;
        Ok(Bytes::from(buffer))
    }

    /// Returns the offset up to which the file was ever written. Preallocated space after it is not
    /// read: that would be slow, and some filesystems would then report it as data.
    pub(crate) fn end_of_data(&self) -> io::Result<u64> {
        self.file.end_of_data()
    }

    /// Reads from `from` to `to` into `buffer`.
    pub(crate) fn read_range(&self, from: u64, to: u64, buffer: &mut Vec<u8>) -> io::Result<()> {
        let bytes = usize::try_from(to.saturating_sub(from)).map_err(io::Error::other)?;
        buffer.resize(bytes, 0);
        self.read_exact(from, buffer)
    }

    /// Fills `buffer` with the bytes at `offset`, and with zeros where they cannot be read.
    pub(crate) fn read_exact(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let missing = self.file.read_undamaged_at(buffer, offset)?;
        self.unreadable_bytes.fetch_add(missing as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Returns `true` if all of the `bytes` bytes at `offset` can be read.
    pub(crate) fn is_readable(&self, offset: u64, bytes: usize) -> io::Result<bool> {
        Ok(self.file.read_undamaged_at(&mut vec![0; bytes], offset)? == 0)
    }

    /// How many bytes could not be read so far. What was read twice counts twice.
    pub(crate) fn unreadable_bytes(&self) -> u64 {
        self.unreadable_bytes.load(Ordering::Relaxed)
    }
}

/// Preallocates the end of `bytes`, or less down to its start if the disk is nearly full. A filesystem
/// without preallocation works as well, only slower.
fn preallocate(file: &File, bytes: RangeInclusive<u64>) -> io::Result<()> {
    let (least, mut wanted) = bytes.into_inner();
    loop {
        match file.preallocate(wanted) {
            Err(error) if error.kind() == io::ErrorKind::StorageFull && wanted > least => {
                // Gives back what was allocated.
                file.set_len(0)?;
                wanted = least.max(wanted / 4);
            }
            done => return done.map(drop),
        }
    }
}
