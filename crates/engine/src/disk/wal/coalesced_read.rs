//! Reads extents that lie close together with one system call.

use std::io;

use bytes::Bytes;

use super::WalExtent;

/// The most bytes of one read, unless a single extent is larger.
const MAX_READ_BYTES: u64 = 256 << 10;
/// The most bytes between two extents of one read.
const MAX_GAP_BYTES: u64 = 1 << 10;

/// Some extents and the bytes that contain them.
pub(crate) struct CoalescedRead<'a> {
    pub(crate) extents: &'a [WalExtent],
    bytes: Bytes,
}

impl CoalescedRead<'_> {
    /// The bytes of one of its extents.
    pub(crate) fn bytes_of(&self, extent: &WalExtent) -> Bytes {
        let start = usize::try_from(extent.offset - self.extents[0].offset).unwrap_or(usize::MAX);
        self.bytes.slice(start..start + extent.bytes as usize)
    }
}

/// Reads the first extents of `rest` and removes them from it. Returns `None` if `rest` is empty.
pub(crate) fn read_next<'a>(rest: &mut &'a [WalExtent]) -> io::Result<Option<CoalescedRead<'a>>> {
    let Some(first) = rest.first() else {
        return Ok(None);
    };
    let mut end = first.end();
    let mut count = 1;
    for extent in &rest[1..] {
        let close = extent.file.number == first.file.number
            && (end..=end + MAX_GAP_BYTES).contains(&extent.offset)
            && extent.end() - first.offset <= MAX_READ_BYTES;
        if !close {
            break;
        }
        end = extent.end();
        count += 1;
    }
    let (extents, later) = rest.split_at(count);
    let bytes = usize::try_from(end - first.offset).map_err(io::Error::other)?;
    let bytes = first.file.read_at(first.offset, bytes)?;
    *rest = later;
    Ok(Some(CoalescedRead { extents, bytes }))
}
