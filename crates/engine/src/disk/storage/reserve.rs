//! Space that is set aside for trims. On a disk that is full to the last byte, retention could not
//! even record what to delete.

use super::file_system::Access;
use super::layout::Layout;

/// Sets `bytes` aside, if there is room and it was not done before.
pub(crate) fn set_aside(layout: &Layout, bytes: u64) {
    let path = layout.reserve();
    let reserve = layout.fs().open(&path, Access::CreateOrWrite);
    let is_done = reserve.is_ok_and(|file| match file.len() {
        Ok(length) => length == bytes || file.preallocate(bytes).is_ok(),
        Err(_) => false,
    });
    if !is_done {
        release(layout);
    }
}

/// Gives the space back to the disk.
pub(crate) fn release(layout: &Layout) {
    let _ = layout.fs().remove_if_exists(&layout.reserve());
}
