//! Reads all entries of the keyed state under a prefix, page by page.

use prombus_engine::{Engine, ReadError, StateEntry, StateKey};

const PAGE_ENTRIES: usize = 512;

pub(crate) struct StatePages<'a> {
    engine: &'a dyn Engine,
    prefix: &'a [u8],
    after: Option<StateKey>,
    is_done: bool,
}

impl<'a> StatePages<'a> {
    pub(crate) fn new(engine: &'a dyn Engine, prefix: &'a [u8]) -> Self {
        Self { engine, prefix, after: None, is_done: false }
    }

    /// Returns the next entries in key order; an empty page means the end.
    pub(crate) async fn next(&mut self) -> Result<Vec<StateEntry>, ReadError> {
        if self.is_done {
            return Ok(Vec::new());
        }
        let page = self.engine.scan(self.prefix, self.after.as_ref(), PAGE_ENTRIES).await?;
        self.is_done = page.len() < PAGE_ENTRIES;
        self.after = page.last().map(|entry| entry.key.clone());
        Ok(page)
    }
}
