//! A blocked Bloom filter, which tells that a run certainly does not contain a key.
//!
//! Most look-ups are for absent keys: whether an event was seen before. Reading one block of 64
//! bytes answers nearly all of them. Each block has a checksum of its own, because a flipped bit must
//! not hide a key.
//!
//! ```text
//! block:  bits [60] | checksum u32
//! ```

use xxhash_rust::xxh3::xxh3_64;

use crate::disk::storage::checksum::checksum;
use crate::disk::storage::file_system::File;

const BLOCK_BYTES: usize = 64;
const BIT_BYTES: usize = 60;
const BITS: u64 = BIT_BYTES as u64 * 8;
const BITS_PER_KEY: u64 = 12;
const PROBES: u32 = 7;

pub(super) const fn blocks_for(keys: u64) -> u64 {
    let blocks = (keys * BITS_PER_KEY).div_ceil(BITS);
    if blocks == 0 { 1 } else { blocks }
}

/// Builds a filter in memory while its run is written.
#[derive(Debug)]
pub(super) struct FilterBuilder {
    blocks: Vec<[u8; BLOCK_BYTES]>,
}

impl FilterBuilder {
    pub(super) fn for_keys(keys: u64) -> Self {
        let blocks = usize::try_from(blocks_for(keys)).expect("a filter fits into memory");
        Self { blocks: vec![[0; BLOCK_BYTES]; blocks] }
    }

    pub(super) fn add(&mut self, key: &[u8]) {
        let (block, bits) = bits_of(key, self.blocks.len() as u64);
        let block = &mut self.blocks[usize::try_from(block).expect("below the length")];
        bits.for_each(|bit| block[bit / 8] |= 1 << (bit % 8));
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        for (number, block) in self.blocks.iter_mut().enumerate() {
            let sum = block_checksum(number as u64, block);
            block[BIT_BYTES..].copy_from_slice(&sum.to_le_bytes());
        }
        self.blocks.concat()
    }
}

fn block_checksum(number: u64, block: &[u8; BLOCK_BYTES]) -> u32 {
    checksum(&block[..BIT_BYTES]) ^ checksum(&number.to_le_bytes())
}

fn bits_of(key: &[u8], blocks: u64) -> (u64, impl Iterator<Item = usize>) {
    let hash = xxh3_64(key);
    let block = u64::try_from((u128::from(hash) * u128::from(blocks)) >> 64).unwrap_or(0);
    // The high bits choose the block; the low bits, mixed again, choose the bits within it.
    let mixed = hash.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let (start, step) = (mixed >> 32, (mixed & 0xFFFF_FFFF) | 1);
    let bits = (0..u64::from(PROBES)).map(move |probe| {
        usize::try_from((start + probe * step) % BITS).expect("below the number of bits")
    });
    (block, bits)
}

/// Returns `false` if the filter of `blocks` blocks at `offset` excludes `key`. The error says what is
/// damaged.
pub(super) fn may_contain(
    file: &File,
    offset: u64,
    blocks: u64,
    key: &[u8],
) -> Result<bool, String> {
    let (number, mut bits) = bits_of(key, blocks);
    let mut block = [0; BLOCK_BYTES];
    file.read_exact_at(&mut block, offset + number * BLOCK_BYTES as u64)
        .map_err(|error| format!("filter block {number}: {error}"))?;
    if block_checksum(number, &block).to_le_bytes() != block[BIT_BYTES..] {
        return Err(format!("filter block {number}: checksum mismatch"));
    }
    Ok(bits.all(|bit| block[bit / 8] & (1 << (bit % 8)) != 0))
}

/// Returns `true` if every block of the filter is intact.
pub(super) fn is_readable(file: &File, offset: u64, blocks: u64) -> bool {
    let mut block = [0; BLOCK_BYTES];
    (0..blocks).all(|number| {
        file.read_exact_at(&mut block, offset + number * BLOCK_BYTES as u64).is_ok()
            && block_checksum(number, &block).to_le_bytes() == block[BIT_BYTES..]
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn passes_all_keys_and_few_others() {
        let mut builder = FilterBuilder::for_keys(20_000);
        (0..20_000u32).for_each(|key| builder.add(&key.to_le_bytes()));
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&builder.finish()).unwrap();
        let file = File::Os(file);
        let passes =
            |key: u32| may_contain(&file, 0, blocks_for(20_000), &key.to_le_bytes()).unwrap();
        assert!((0..20_000).all(passes));
        let others = (20_000..40_000).filter(|key| passes(*key)).count();
        assert!(others < 400, "{others} of 20000 others passed");
    }
}
