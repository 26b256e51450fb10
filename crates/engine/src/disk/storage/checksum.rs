//! The checksum of everything on disk: CRC-32C, computed in hardware if available.

pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// Combines the checksums of two byte strings into that of their concatenation. The second may
/// have been computed elsewhere, before the first string was known.
pub(crate) fn combine(first: u32, second: u32, mut second_bytes: usize) -> u32 {
    let mut shifted = first;
    for digits in &APPEND_ZEROS {
        let digit = second_bytes & 0xF;
        if digit > 0 {
            shifted = digits[digit - 1].apply(shifted);
        }
        second_bytes >>= 4;
    }
    debug_assert_eq!(second_bytes, 0, "the second string is longer than the tables cover");
    shifted ^ second
}

/// The effect of appending a number of zero bytes on a checksum. It is linear in the bits of the
/// checksum, so a table lookup handles four bits at a time.
#[derive(Clone, Copy)]
struct AppendZeros([[u32; 16]; 8]);

/// Indexed by the hexadecimal digits of the number of zero bytes, lowest first; less than 16 MiB.
static APPEND_ZEROS: [[AppendZeros; 15]; 6] = append_zeros();

impl AppendZeros {
    const POLYNOMIAL: u32 = 0x82F6_3B78;

    const fn apply(&self, sum: u32) -> u32 {
        let (mut result, mut nibble) = (0, 0);
        while nibble < 8 {
            result ^= self.0[nibble][(sum >> (4 * nibble) & 0xF) as usize];
            nibble += 1;
        }
        result
    }

    /// Builds the table from the effect on each single bit.
    const fn of_bits(bits: [u32; 32]) -> Self {
        let mut table = [[0; 16]; 8];
        let mut nibble = 0;
        while nibble < 8 {
            let mut value: usize = 1;
            while value < 16 {
                let lowest = bits[4 * nibble + value.trailing_zeros() as usize];
                table[nibble][value] = table[nibble][value & (value - 1)] ^ lowest;
                value += 1;
            }
            nibble += 1;
        }
        Self(table)
    }

    const fn one() -> Self {
        let mut bits = [0; 32];
        let mut bit = 0;
        while bit < 32 {
            let (mut sum, mut step) = (1u32 << bit, 0);
            while step < 8 {
                sum = (sum >> 1) ^ if sum & 1 == 1 { Self::POLYNOMIAL } else { 0 };
                step += 1;
            }
            bits[bit] = sum;
            bit += 1;
        }
        Self::of_bits(bits)
    }

    const fn and(&self, more: &Self) -> Self {
        let mut bits = [0; 32];
        let mut bit = 0;
        while bit < 32 {
            bits[bit] = more.apply(self.apply(1 << bit));
            bit += 1;
        }
        Self::of_bits(bits)
    }
}

const fn append_zeros() -> [[AppendZeros; 15]; 6] {
    let mut once = AppendZeros::one();
    let mut all = [[once; 15]; 6];
    let mut nibble = 0;
    while nibble < 6 {
        all[nibble][0] = once;
        let mut digit = 1;
        while digit < 15 {
            all[nibble][digit] = all[nibble][digit - 1].and(&once);
            digit += 1;
        }
        once = all[nibble][14].and(&once);
        nibble += 1;
    }
    all
}

/// A checksum over a growing buffer, computed block by block while the newest bytes are in the
/// processor's cache: computing it at the end would load all of them from memory again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BlockChecksum {
    done: usize,
    sum: u32,
}

impl BlockChecksum {
    pub(crate) const BLOCK_BYTES: usize = 16 << 10;

    /// Adds the full blocks of `bytes`, which starts with the bytes added before.
    pub(crate) fn advance(&mut self, bytes: &[u8]) {
        while bytes.len() - self.done >= Self::BLOCK_BYTES {
            self.add_block(&bytes[self.done..self.done + Self::BLOCK_BYTES]);
        }
    }

    /// Returns the checksum of all of `bytes`, which starts with the bytes added before.
    pub(crate) fn finish(mut self, bytes: &[u8]) -> u32 {
        self.advance(bytes);
        self.add_block(&bytes[self.done..]);
        self.sum
    }

    /// Adds the next block, which is full unless it is the last.
    pub(crate) fn add_block(&mut self, block: &[u8]) {
        self.sum = self.sum.rotate_left(7) ^ checksum(block);
        self.done += block.len();
    }

    /// The checksum of all blocks added. After a full one, [`BlockChecksum::finish`] adds an empty one.
    pub(crate) fn sum(mut self) -> u32 {
        if self.done.is_multiple_of(Self::BLOCK_BYTES) {
            self.add_block(&[]);
        }
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_the_check_value_of_crc32c() {
        assert_eq!(checksum(b"123456789"), 0xE306_9283);
    }

    #[test]
    fn combining_gives_the_checksum_of_the_whole() {
        let bytes: Vec<u8> =
            (0..1_100_000u32).map(|i| (i.wrapping_mul(i) % 251).to_le_bytes()[0]).collect();
        let lengths = (0..600).chain([4095, 4096, 65_535, 65_536, 70_001, 1_048_576, 1_099_000]);
        for second in lengths {
            for first in [0, 1, 50, 300] {
                let whole = &bytes[..first + second];
                let (a, b) = whole.split_at(first);
                assert_eq!(combine(checksum(a), checksum(b), b.len()), checksum(whole));
            }
        }
    }

    #[test]
    fn incremental_checksum_equals_the_one_shot_checksum() {
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
