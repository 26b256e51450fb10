//! The one checksum of everything on disk: CRC-32C, in hardware where there is some.

pub(super) fn checksum(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

#[cfg(test)]
mod tests {
    #[test]
    fn is_the_one_that_the_files_of_version_1_have() {
        assert_eq!(super::checksum(b"123456789"), 0xE306_9283);
    }
}
