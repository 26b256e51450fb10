//! Faults of the storage that a test can switch on.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::io::Errno;

/// Makes real writes and syncs fail the way an operating system makes them fail.
///
/// Idle until switched on. The write that does not fit is cut short, as on a full disk.
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
    /// From now on the disk has room for so many bytes.
    pub fn leave_room(&self, bytes: u64) {
        self.room.store(bytes, Ordering::SeqCst);
    }

    /// From now on there is room again.
    pub fn make_room(&self) {
        self.leave_room(UNLIMITED);
    }

    /// Whether syncs fail from now on.
    pub fn fail_syncs(&self, fail: bool) {
        self.syncs_fail.store(fail, Ordering::SeqCst);
    }

    /// How often the log or a checkpoint was synced so far.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::SeqCst)
    }

    /// How many of `wanted` bytes may be written.
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

/// Whether an error means that there is no room, which passes, or something worse.
pub(crate) fn means_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}
