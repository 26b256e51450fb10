//! The one checksum of everything on disk: CRC-32C, in hardware where there is some.

pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// The checksum of two rows of bytes one behind the other, from that of each: the second may have
/// been taken elsewhere, before the first was known.
pub(crate) fn joined(first: u32, second: u32, mut second_bytes: usize) -> u32 {
    let mut moved = first;
    for digits in &ZEROS_BEHIND {
        let digit = second_bytes & 0xF;
        if digit > 0 {
            moved = digits[digit - 1].append_to(moved);
        }
        second_bytes >>= 4;
    }
    debug_assert_eq!(second_bytes, 0, "no row is as long as that");
    moved ^ second
}

/// What a number of zeros does to the checksum of the bytes before them. That is linear in its bits,
/// so it is looked up four bits at a time.
#[derive(Clone, Copy)]
struct ZerosBehind([[u32; 16]; 8]);

/// By the hexadecimal digits of the number of zeros, lowest first: 16 MiB of them at most.
static ZEROS_BEHIND: [[ZerosBehind; 15]; 6] = zeros_behind();

impl ZerosBehind {
    const POLYNOMIAL: u32 = 0x82F6_3B78;

    const fn append_to(&self, sum: u32) -> u32 {
        let (mut result, mut place) = (0, 0);
        while place < 8 {
            result ^= self.0[place][(sum >> (4 * place) & 0xF) as usize];
            place += 1;
        }
        result
    }

    /// From what becomes of each single bit.
    const fn of_bits(bits: [u32; 32]) -> Self {
        let mut table = [[0; 16]; 8];
        let mut place = 0;
        while place < 8 {
            let mut value: usize = 1;
            while value < 16 {
                let lowest = bits[4 * place + value.trailing_zeros() as usize];
                table[place][value] = table[place][value & (value - 1)] ^ lowest;
                value += 1;
            }
            place += 1;
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
            bits[bit] = more.append_to(self.append_to(1 << bit));
            bit += 1;
        }
        Self::of_bits(bits)
    }
}

const fn zeros_behind() -> [[ZerosBehind; 15]; 6] {
    let mut once = ZerosBehind::one();
    let mut all = [[once; 15]; 6];
    let mut place = 0;
    while place < 6 {
        all[place][0] = once;
        let mut digit = 1;
        while digit < 15 {
            all[place][digit] = all[place][digit - 1].and(&once);
            digit += 1;
        }
        once = all[place][14].and(&once);
        place += 1;
    }
    all
}

/// A checksum of bytes that are still growing, taken block by block while the newest are at hand:
/// taking it over all of them in the end would fetch them from memory once more.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BlockChecksum {
    done: usize,
    sum: u32,
}

impl BlockChecksum {
    const BLOCK_BYTES: usize = 16 << 10;

    /// Takes in the full blocks of `bytes`, of which it knows the beginning.
    pub(crate) fn advance(&mut self, bytes: &[u8]) {
        while bytes.len() - self.done >= Self::BLOCK_BYTES {
            self.add(&bytes[self.done..self.done + Self::BLOCK_BYTES]);
        }
    }

    /// The checksum of all of `bytes`, of which it knows the beginning.
    pub(crate) fn finish(mut self, bytes: &[u8]) -> u32 {
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
    fn joined_or_whole_the_checksum_is_the_same() {
        let bytes: Vec<u8> =
            (0..1_100_000u32).map(|i| (i.wrapping_mul(i) % 251).to_le_bytes()[0]).collect();
        let lengths = (0..600).chain([4095, 4096, 65_535, 65_536, 70_001, 1_048_576, 1_099_000]);
        for second in lengths {
            for first in [0, 1, 50, 300] {
                let whole = &bytes[..first + second];
                let (a, b) = whole.split_at(first);
                assert_eq!(joined(checksum(a), checksum(b), b.len()), checksum(whole));
            }
        }
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
