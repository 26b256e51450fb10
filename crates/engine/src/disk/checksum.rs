//! The one checksum of everything on disk: CRC-32C, in hardware where there is some.

pub(super) fn checksum(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// A checksum of bytes that are still growing, taken block by block while the newest are at hand:
/// taking it over all of them in the end would fetch them from memory once more.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BlockChecksum {
    done: usize,
    sum: u32,
}

impl BlockChecksum {
    const BLOCK_BYTES: usize = 16 << 10;

    /// Takes in the full blocks of `bytes`, of which it knows the beginning.
    pub(super) fn advance(&mut self, bytes: &[u8]) {
        while bytes.len() - self.done >= Self::BLOCK_BYTES {
            self.add(&bytes[self.done..self.done + Self::BLOCK_BYTES]);
        }
    }

    /// The checksum of all of `bytes`, of which it knows the beginning.
    pub(super) fn finish(mut self, bytes: &[u8]) -> u32 {
        self.advance(bytes);
        self.add(&bytes[self.done..]);
        self.sum
    }

    fn add(&mut self, block: &[u8]) {
        self.sum = self.sum.rotate_left(7) ^ checksum(block);
        self.done += block.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_one_that_the_files_of_version_1_have() {
        assert_eq!(checksum(b"123456789"), 0xE306_9283);
    }

    #[test]
    fn growing_or_grown_the_checksum_is_the_same_and_sees_every_block() {
        let bytes: Vec<u8> = (0..100_000u32).map(|i| i.to_le_bytes()[0] ^ 0x5A).collect();
        let mut growing = BlockChecksum::default();
        (0..bytes.len()).step_by(999).for_each(|length| growing.advance(&bytes[..length]));
        let whole = BlockChecksum::default().finish(&bytes);
        assert_eq!(growing.finish(&bytes), whole);
        for at in (0..bytes.len()).step_by(777) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            assert_ne!(BlockChecksum::default().finish(&flipped), whole);
        }
    }
}
