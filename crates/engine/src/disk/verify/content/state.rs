//! The pages and the filter of a state run.

use bytes::Bytes;

use super::{Counted, Units};
use crate::disk::sorted_runs::filter::{self, BLOCK_BYTES};
use crate::disk::state::page::{MAX_PAGE_BYTES, StatePage, StatePageKind};
use crate::disk::state::run::StateRunInfo;

pub(super) struct State {
    info: StateRunInfo,
    blocks: u64,
    entries: u64,
}

impl State {
    pub(super) fn new(info: &StateRunInfo) -> Self {
        Self { info: *info, blocks: 0, entries: 0 }
    }
}

impl Units for State {
    fn take(&mut self, bytes: &[u8], offset: u64) -> Result<usize, String> {
        if offset == 0 {
            return Ok(0);
        }
        if offset < self.info.filter {
            let Some(length) = bytes.get(4..8) else { return Ok(0) };
            let length = u32::from_le_bytes(length.try_into().expect("four bytes")) as usize;
            if length <= MAX_PAGE_BYTES && bytes.len() < length {
                return Ok(0);
            }
            let page = Bytes::copy_from_slice(&bytes[..length.clamp(8, bytes.len())]);
            let page = StatePage::decode(&page, offset)
                .map_err(|detail| format!("a page is damaged: {detail}"))?;
            if page.kind == StatePageKind::Leaf {
                self.entries += u64::from(page.entries());
            }
            return Ok(length);
        }
        if self.blocks == self.info.filter_blocks {
            return Ok(bytes.len());
        }
        let Some(block) = bytes.first_chunk::<BLOCK_BYTES>() else { return Ok(0) };
        if !filter::is_intact(self.blocks, block) {
            return Err(format!("block {} of the filter has a checksum mismatch", self.blocks));
        }
        self.blocks += 1;
        Ok(BLOCK_BYTES)
    }

    fn finish(&mut self, _rest: &[u8]) -> Result<Counted, String> {
        if self.blocks < self.info.filter_blocks {
            return Err("the filter is not complete".to_owned());
        }
        if self.entries != self.info.entries {
            let (found, expected) = (self.entries, self.info.entries);
            return Err(format!("{found} entries are there instead of {expected}"));
        }
        Ok(Counted { entries: self.entries, ..Counted::default() })
    }
}
