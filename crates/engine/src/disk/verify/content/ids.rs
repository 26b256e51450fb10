//! The filter and the pages of an id run.

use super::{Counted, Units};
use crate::disk::ids::run::{self, IdRunInfo, PAGE_BYTES};
use crate::disk::sorted_runs::filter::{self, BLOCK_BYTES};
use crate::disk::storage::file_header;

pub(super) struct Ids {
    home_pages: u64,
    /// Version 1 has no filter.
    filter_blocks: u64,
    blocks: u64,
    pages: u64,
    entries: u64,
}

impl Ids {
    pub(super) fn new(info: &IdRunInfo) -> Self {
        let home_pages = info.home_pages;
        Self { home_pages, filter_blocks: 0, blocks: 0, pages: 0, entries: 0 }
    }
}

impl Units for Ids {
    fn take(&mut self, bytes: &[u8], offset: u64) -> Result<usize, String> {
        if offset == 0 {
            let has_filter = file_header::version(bytes) > 1;
            self.filter_blocks = if has_filter { run::filter_blocks(self.home_pages) } else { 0 };
            return Ok(0);
        }
        if self.blocks < self.filter_blocks {
            let Some(block) = bytes.first_chunk::<BLOCK_BYTES>() else { return Ok(0) };
            if !filter::is_intact(self.blocks, block) {
                return Err(format!("block {} of the filter has a checksum mismatch", self.blocks));
            }
            self.blocks += 1;
            return Ok(BLOCK_BYTES);
        }
        let Some(page) = bytes.first_chunk::<PAGE_BYTES>() else { return Ok(0) };
        let number = self.pages;
        let entries = run::entries_of_page(number, page)
            .ok_or_else(|| format!("page {number} has a checksum mismatch"))?;
        self.entries += entries as u64;
        self.pages += 1;
        Ok(PAGE_BYTES)
    }

    fn finish(&mut self, rest: &[u8]) -> Result<Counted, String> {
        if self.pages < self.home_pages || !rest.is_empty() {
            return Err("the last page is not complete".to_owned());
        }
        Ok(Counted { entries: self.entries, ..Counted::default() })
    }
}
