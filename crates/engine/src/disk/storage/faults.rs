//! Storage faults that tests inject.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::io::Errno;

/// Makes real writes and syncs fail with the errors that an operating system returns.
///
/// Injects nothing by default. A write that exceeds the limit is cut short, as on a full disk.
#[derive(Debug)]
pub struct StorageFaults {
    room: AtomicU64,
    syncs_fail: AtomicBool,
    syncs: AtomicU64,
}

const UNLIMITED: u64 = u64::MAX;

impl Default for StorageFaults {
    fn default() -> Self {
        Self {
            room: AtomicU64::new(UNLIMITED),
            syncs_fail: AtomicBool::new(false),
            syncs: AtomicU64::new(0),
        }
    }
}

impl StorageFaults {
    /// Limits further writes to this many bytes in total.
    pub fn leave_room(&self, bytes: u64) {
        self.room.store(bytes, Ordering::SeqCst);
    }

    /// Removes the limit of [`StorageFaults::leave_room`].
    pub fn make_room(&self) {
        self.leave_room(UNLIMITED);
    }

    /// Makes every further sync fail, or succeed again.
    pub fn fail_syncs(&self, fail: bool) {
        self.syncs_fail.store(fail, Ordering::SeqCst);
    }

    /// Returns how often the write-ahead log or a checkpoint was synced so far.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::SeqCst)
    }

    /// Returns how many of `wanted` bytes may be written.
    pub(crate) fn admit(&self, wanted: usize) -> usize {
        let wanted = wanted as u64;
        let take = |room: u64| (room != UNLIMITED).then(|| room.saturating_sub(wanted));
        match self.room.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take) {
            Ok(room) => usize::try_from(room.min(wanted)).unwrap_or(usize::MAX),
            Err(_) => usize::try_from(wanted).unwrap_or(usize::MAX),
        }
    }

    pub(crate) fn before_sync(&self) -> io::Result<()> {
        self.syncs.fetch_add(1, Ordering::SeqCst);
        if self.syncs_fail.load(Ordering::SeqCst) { Err(Errno::IO.into()) } else { Ok(()) }
    }

    pub(crate) fn full() -> io::Error {
        Errno::NOSPC.into()
    }
}

/// Returns `true` if what was read is lost: the medium is damaged, or the file is too short. Any other
/// error says nothing about the content, and a later attempt may succeed.
pub(crate) fn is_damage(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::UnexpectedEof || Errno::from_io_error(error) == Some(Errno::IO)
}

/// Returns `true` if storage refused for now, because space, descriptors or memory ran out: the caller
/// may retry. Any other error is permanent.
pub(crate) fn is_temporary(error: &io::Error) -> bool {
    let is_out_of_handles = || {
        let errno = Errno::from_io_error(error);
        errno.is_some_and(|errno| matches!(errno, Errno::MFILE | Errno::NFILE | Errno::AGAIN))
    };
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge
            | io::ErrorKind::OutOfMemory
    ) || is_out_of_handles()
}
