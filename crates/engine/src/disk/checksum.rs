//! The one checksum of everything on disk: CRC-32C, in hardware where there is one.

pub(super) fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// The checksum of `bytes` behind something whose checksum is `before`.
pub(super) fn checksum_behind(before: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(before, bytes)
}
