//! A blocked Bloom filter, which tells that a run certainly does not contain a key.
//!
//! Most look-ups are for absent keys: whether an event was seen before. One block of 64 bytes answers
//! nearly all of them. Each block has a checksum of its own, because a flipped bit must not hide a
//! key.
//!
//! ```text
//! block:  bits [60] | checksum u32
//! ```

use std::io;
use std::sync::OnceLock;

use xxhash_rust::xxh3::xxh3_64;

use super::RunFault;
use crate::disk::storage::checksum::checksum;
use crate::disk::storage::file_system::File;

pub(crate) const BLOCK_BYTES: usize = 64;
const BIT_BYTES: usize = 60;
const BITS: u64 = BIT_BYTES as u64 * 8;
const BITS_PER_KEY: u64 = 12;
const PROBES: u32 = 7;

pub(crate) const fn blocks_for(keys: u64) -> u64 {
    let blocks = (keys * BITS_PER_KEY).div_ceil(BITS);
    if blocks == 0 { 1 } else { blocks }
}

pub(crate) fn hash(key: &[u8]) -> u64 {
    xxh3_64(key)
}

type Block = [u8; BLOCK_BYTES];

fn add_to_block(block: &mut Block, bits: impl Iterator<Item = usize>) {
    bits.for_each(|bit| block[bit / 8] |= 1 << (bit % 8));
}

fn seal_block(number: u64, block: &mut Block) {
    let sum = block_checksum(number, block);
    block[BIT_BYTES..].copy_from_slice(&sum.to_le_bytes());
}

fn block_checksum(number: u64, block: &Block) -> u32 {
    checksum(&block[..BIT_BYTES]) ^ checksum(&number.to_le_bytes())
}

/// Builds a filter in memory while its run is written.
#[derive(Debug)]
pub(crate) struct FilterBuilder {
    blocks: Vec<Block>,
}

impl FilterBuilder {
    pub(crate) fn for_keys(keys: u64) -> Self {
        let blocks = usize::try_from(blocks_for(keys)).expect("a filter fits into memory");
        Self { blocks: vec![[0; BLOCK_BYTES]; blocks] }
    }

    pub(crate) fn add(&mut self, hash: u64) {
        let (block, bits) = bits_of(hash, self.blocks.len() as u64);
        add_to_block(&mut self.blocks[usize::try_from(block).expect("below the length")], bits);
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.blocks.iter_mut().zip(0..).for_each(|(block, number)| seal_block(number, block));
        self.blocks.concat()
    }
}

/// Writes a filter whose keys are added in the order of their hashes, in bounded memory.
#[derive(Debug)]
pub(crate) struct SortedFilterWriter<'a> {
    file: &'a File,
    filter: Filter,
    /// The number of the block that is being filled.
    number: u64,
    block: Block,
    finished: Vec<u8>,
    /// The offset at which `finished` belongs.
    offset: u64,
}

impl<'a> SortedFilterWriter<'a> {
    pub(crate) fn new(file: &'a File, filter: Filter) -> Self {
        let capacity = usize::try_from(filter.bytes()).map_or(MAX_BYTES_IN_MEMORY, |bytes| bytes);
        let finished = Vec::with_capacity(capacity.min(MAX_BYTES_IN_MEMORY));
        let offset = filter.offset;
        Self { file, filter, number: 0, block: [0; BLOCK_BYTES], finished, offset }
    }

    pub(crate) fn add(&mut self, hash: u64) -> io::Result<()> {
        let (number, bits) = bits_of(hash, self.filter.blocks);
        while self.number < number {
            self.finish_block()?;
        }
        add_to_block(&mut self.block, bits);
        Ok(())
    }

    fn finish_block(&mut self) -> io::Result<()> {
        if self.finished.len() + BLOCK_BYTES > MAX_BYTES_IN_MEMORY {
            self.flush()?;
        }
        seal_block(self.number, &mut self.block);
        self.finished.extend_from_slice(&self.block);
        self.block = [0; BLOCK_BYTES];
        self.number += 1;
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.finished, self.offset)?;
        self.offset += self.finished.len() as u64;
        self.finished.clear();
        Ok(())
    }

    /// Writes the rest. The filter stays in memory if it is small.
    pub(crate) fn finish(mut self) -> io::Result<Filter> {
        while self.number < self.filter.blocks {
            self.finish_block()?;
        }
        let is_complete = self.offset == self.filter.offset;
        self.file.write_all_at(&self.finished, self.offset)?;
        if is_complete {
            self.filter.in_memory = OnceLock::from(self.finished.into_boxed_slice());
        }
        Ok(self.filter)
    }
}

/// Returns the block of a key and its bits within the block.
fn bits_of(hash: u64, blocks: u64) -> (u64, impl Iterator<Item = usize>) {
    let block = u64::try_from((u128::from(hash) * u128::from(blocks)) >> 64).unwrap_or(0);
    // The high bits choose the block; the low bits, mixed again, choose the bits within it.
    let mixed = hash.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let (start, step) = (mixed >> 32, (mixed & 0xFFFF_FFFF) | 1);
    let bits = (0..u64::from(PROBES)).map(move |probe| {
        usize::try_from((start + probe * step) % BITS).expect("below the number of bits")
    });
    (block, bits)
}

/// Filters up to this size stay in memory once they were used; of larger ones, each look-up reads a
/// block. Runs grow eightfold from level to level and a level has up to seven of them, so all filters
/// in memory take up to 8 times this much, and a little more while a merge is behind.
const MAX_BYTES_IN_MEMORY: usize = 8 << 20;

/// A filter in the file of a run.
#[derive(Debug)]
pub(crate) struct Filter {
    offset: u64,
    blocks: u64,
    in_memory: OnceLock<Box<[u8]>>,
}

impl Filter {
    pub(crate) const fn at(offset: u64, blocks: u64) -> Self {
        Self { offset, blocks, in_memory: OnceLock::new() }
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.blocks * BLOCK_BYTES as u64
    }

    /// Returns `false` if the filter excludes a key of this `hash`.
    pub(crate) fn may_contain(&self, file: &File, hash: u64) -> Result<bool, RunFault> {
        let (number, mut bits) = bits_of(hash, self.blocks);
        let block = match self.load(file)? {
            Some(bytes) => {
                let start = usize::try_from(number).expect("below the length") * BLOCK_BYTES;
                bytes[start..start + BLOCK_BYTES].try_into().expect("a whole block")
            }
            None => self.read_block(file, number)?,
        };
        check_block(number, &block)?;
        Ok(bits.all(|bit| block[bit / 8] & (1 << (bit % 8)) != 0))
    }

    /// Returns the filter in memory, unless it is too large for that.
    fn load(&self, file: &File) -> Result<Option<&[u8]>, RunFault> {
        if let Some(loaded) = self.in_memory.get() {
            return Ok(Some(loaded));
        }
        match usize::try_from(self.bytes()) {
            Ok(bytes) if bytes <= MAX_BYTES_IN_MEMORY => {
                let mut loaded = vec![0; bytes].into_boxed_slice();
                file.read_exact_at(&mut loaded, self.offset)
                    .map_err(|error| RunFault::of_read("filter", error))?;
                Ok(Some(self.in_memory.get_or_init(|| loaded)))
            }
            _ => Ok(None),
        }
    }

    fn read_block(&self, file: &File, number: u64) -> Result<Block, RunFault> {
        let mut block = [0; BLOCK_BYTES];
        file.read_exact_at(&mut block, self.offset + number * BLOCK_BYTES as u64)
            .map_err(|error| RunFault::of_read(&format!("filter block {number}"), error))?;
        Ok(block)
    }

    /// Reads all of it from the file and checks it.
    pub(crate) fn check(&self, file: &File) -> Result<(), RunFault> {
        (0..self.blocks).try_for_each(|number| check_block(number, &self.read_block(file, number)?))
    }
}

/// Returns `true` if the checksum of the block `number` matches.
pub(crate) fn is_intact(number: u64, block: &[u8; BLOCK_BYTES]) -> bool {
    block_checksum(number, block).to_le_bytes() == block[BIT_BYTES..]
}

fn check_block(number: u64, block: &Block) -> Result<(), RunFault> {
    if is_intact(number, block) {
        return Ok(());
    }
    Err(RunFault::Damaged(format!("filter block {number}: checksum mismatch")))
}

/// Returns `false` if the filter of `blocks` blocks at `offset` excludes a key of this `hash`. Keeps
/// nothing in memory.
pub(crate) fn may_contain(
    file: &File,
    offset: u64,
    blocks: u64,
    hash: u64,
) -> Result<bool, RunFault> {
    let (number, mut bits) = bits_of(hash, blocks);
    let block = Filter::at(offset, blocks).read_block(file, number)?;
    check_block(number, &block)?;
    Ok(bits.all(|bit| block[bit / 8] & (1 << (bit % 8)) != 0))
}

/// Returns `true` if every block of the filter is intact.
pub(crate) fn is_readable(file: &File, offset: u64, blocks: u64) -> bool {
    Filter::at(offset, blocks).check(file).is_ok()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn passes_all_keys_and_few_others() {
        let mut builder = FilterBuilder::for_keys(20_000);
        let mut hashes: Vec<_> = (0..40_000u32).map(|key| hash(&key.to_le_bytes())).collect();
        let others = hashes.split_off(20_000);
        hashes.iter().for_each(|hash| builder.add(*hash));
        let whole = builder.finish();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&whole).unwrap();
        let file = File::Os(file);
        let passes = |hash: &u64| may_contain(&file, 0, blocks_for(20_000), *hash).unwrap();
        assert!(hashes.iter().all(passes));
        let passed = others.iter().filter(|hash| passes(hash)).count();
        assert!(passed < 400, "{passed} of 20000 others passed");

        // Written in order, it is the same filter.
        let sorted = File::Os(tempfile::tempfile().unwrap());
        hashes.sort_unstable();
        let mut writer = SortedFilterWriter::new(&sorted, Filter::at(0, blocks_for(20_000)));
        hashes.iter().for_each(|hash| writer.add(*hash).unwrap());
        let written = writer.finish().unwrap();
        assert_eq!(sorted.read_available(0, whole.len() + 1).unwrap(), whole);
        let loaded = Filter::at(0, blocks_for(20_000));
        for hash in hashes.iter().chain(&others) {
            assert_eq!(written.may_contain(&sorted, *hash).unwrap(), passes(hash));
            assert_eq!(loaded.may_contain(&file, *hash).unwrap(), passes(hash));
        }
    }
}
