//! A sorted run of state changes: a tree of pages, leaves in key order.
//!
//! ```text
//! header | leaves, with inner pages between them as they fill | root | filter
//! ```

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use prombus_proto::Timestamp;

use super::change::StateChange;
use super::expiry_histogram::ExpiryHistogram;
use super::page::{StatePage, StatePageBuilder, StatePageKind};
use crate::StateKey;
use crate::disk::sorted_runs::filter::{self, FilterBuilder};
use crate::disk::sorted_runs::{self, RunFault};
use crate::disk::storage::file_header::{self, HEADER_BYTES, STATE_RUN};
use crate::disk::storage::file_system::{Access, File, FileSystem, SequentialWriter};

/// A sorted run of state changes.
#[derive(Debug)]
pub(crate) struct StateRun {
    pub(crate) info: StateRunInfo,
    pub(crate) path: PathBuf,
    file: File,
    /// Set when a merge could not read all of it: it is not merged again.
    is_damaged: AtomicBool,
}

/// What the catalog records about a state run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StateRunInfo {
    pub(crate) number: u64,
    /// How many merges its entries went through.
    pub(crate) level: u32,
    pub(crate) entries: u64,
    /// The offset of the root page.
    pub(crate) root: u64,
    /// The offset of the Bloom filter.
    pub(crate) filter: u64,
    pub(crate) filter_blocks: u64,
    /// When the last entry expires; `None` if some never do.
    pub(crate) all_expire_by: Option<Timestamp>,
    /// When half of the entries have expired; `None` if less than half ever do.
    pub(crate) half_expire_by: Option<Timestamp>,
    /// How many entries say that a key is deleted.
    pub(crate) deletes: u64,
}

/// Writes `changes`, which are sorted and at most `at_most`, and syncs the file. Returns `None` and
/// leaves no file if there are none.
pub(crate) fn write_run(
    fs: &FileSystem,
    path: &Path,
    number: u64,
    level: u32,
    at_most: u64,
    changes: impl Iterator<Item = Result<StateChange, RunFault>>,
) -> io::Result<Option<StateRun>> {
    let file = sorted_runs::create(fs, path)?;
    let mut tree =
        TreeWriter::new(BufWriter::with_capacity(1 << 18, SequentialWriter::new(&file)), number)?;
    let mut filter = FilterBuilder::for_keys(at_most);
    let (mut entries, mut deletes) = (0, 0);
    let mut all_expire_by = Some(Timestamp(0));
    let mut expiries = ExpiryHistogram::new();
    for change in changes {
        let change = change.map_err(RunFault::into_io)?;
        filter.add(filter::hash(change.key.as_bytes()));
        entries += 1;
        deletes += u64::from(change.put.is_none());
        let expires_at = change.put.as_ref().and_then(|(_, expires_at)| *expires_at);
        // Rewriting the run drops expired entries, but not deletes: a delete is here because it may
        // hide an older value.
        expiries.add(expires_at);
        let gone_by = if change.put.is_some() { expires_at } else { Some(Timestamp(0)) };
        all_expire_by = all_expire_by.zip(gone_by).map(|(a, b)| a.max(b));
        tree.push(&change)?;
    }
    if entries == 0 {
        drop(tree);
        fs.remove_file(path)?;
        return Ok(None);
    }
    let root = tree.finish()?;
    let filter_at = tree.offset;
    tree.out.write_all(&filter.finish())?;
    tree.out.flush()?;
    drop(tree);
    file.sync_data()?;
    let info = StateRunInfo {
        number,
        level,
        entries,
        root,
        filter: filter_at,
        filter_blocks: filter::blocks_for(at_most),
        all_expire_by,
        half_expire_by: expiries.half_expired_by(),
        deletes,
    };
    Ok(Some(StateRun { info, path: path.to_owned(), file, is_damaged: AtomicBool::new(false) }))
}

struct TreeWriter<W: Write> {
    out: W,
    offset: u64,
    /// The page being filled on each level, leaves first.
    levels: Vec<StatePageBuilder>,
}

impl<W: Write> TreeWriter<W> {
    fn new(mut out: W, number: u64) -> io::Result<Self> {
        out.write_all(&file_header::encode(STATE_RUN, number))?;
        let levels = vec![StatePageBuilder::new(StatePageKind::Leaf)];
        Ok(Self { out, offset: HEADER_BYTES as u64, levels })
    }

    fn push(&mut self, change: &StateChange) -> io::Result<()> {
        self.levels[0].push_change(change);
        let mut level = 0;
        while self.levels[level].is_full() {
            self.write_page(level)?;
            level += 1;
        }
        Ok(())
    }

    /// Writes the page of `level` and adds it to its parent.
    fn write_page(&mut self, level: usize) -> io::Result<u64> {
        let offset = self.offset;
        let (bytes, first_key) = self.levels[level].finish(offset);
        self.out.write_all(&bytes)?;
        self.offset += bytes.len() as u64;
        if level + 1 == self.levels.len() {
            self.levels.push(StatePageBuilder::new(StatePageKind::Inner));
        }
        self.levels[level + 1].push_child(&first_key, offset);
        Ok(offset)
    }

    /// Writes the remaining pages and returns the offset of the root.
    fn finish(&mut self) -> io::Result<u64> {
        let mut level = 0;
        let mut newest = 0;
        while level < self.levels.len() {
            if !self.levels[level].is_empty() {
                let is_top = level + 1 == self.levels.len();
                newest = self.write_page(level)?;
                if is_top {
                    return Ok(newest);
                }
            }
            level += 1;
        }
        Ok(newest)
    }
}

impl StateRun {
    pub(crate) fn open(fs: &FileSystem, path: PathBuf, info: StateRunInfo) -> io::Result<Self> {
        let file = fs.open(&path, Access::Read)?;
        Ok(Self { info, file, path, is_damaged: AtomicBool::new(false) })
    }

    /// Reads all of it and returns `true` if nothing is damaged.
    pub(crate) fn is_readable(&self) -> io::Result<bool> {
        let read_all = || self.iter_from(b"", None)?.try_for_each(|change| change.map(drop));
        match read_all() {
            Ok(()) => Ok(true),
            Err(RunFault::Damaged(_)) => Ok(false),
            Err(RunFault::Io(error)) => Err(error),
        }
    }

    /// Returns `true` if every block of its filter can be read.
    pub(crate) fn is_filter_readable(&self) -> bool {
        filter::is_readable(&self.file, self.info.filter, self.info.filter_blocks)
    }

    /// Reads every intact leaf, also behind damaged pages. Returns the changes in key order and the
    /// number of damaged ranges between them.
    pub(crate) fn readable_changes(&self) -> io::Result<(Vec<StateChange>, usize)> {
        let bytes = self.info.filter.saturating_sub(HEADER_BYTES as u64);
        let mut content = vec![0; usize::try_from(bytes).map_err(io::Error::other)?];
        self.file.read_undamaged_at(&mut content, HEADER_BYTES as u64)?;
        let content = Bytes::from(content);
        let (mut changes, mut damaged_ranges) = (Vec::new(), 0);
        let (mut at, mut is_damaged) = (0, false);
        while at < content.len() {
            // A page's checksum covers its offset, so whatever passes is a page.
            match StatePage::decode(&content.slice(at..), (HEADER_BYTES + at) as u64) {
                Ok(mut page) => {
                    at = usize::try_from(page.end).map_err(io::Error::other)? - HEADER_BYTES;
                    is_damaged = false;
                    while let Some(change) =
                        (page.kind == StatePageKind::Leaf).then(|| page.take_change()).flatten()
                    {
                        changes.push(change);
                    }
                }
                Err(_) => {
                    at += 1;
                    damaged_ranges += usize::from(!std::mem::replace(&mut is_damaged, true));
                }
            }
        }
        Ok((changes, damaged_ranges))
    }

    pub(crate) fn is_damaged(&self) -> bool {
        self.is_damaged.load(Ordering::Relaxed)
    }

    pub(crate) fn set_damaged(&self) {
        self.is_damaged.store(true, Ordering::Relaxed);
    }

    /// Returns the number in the header of its file.
    pub(crate) fn header_number(&self) -> Result<u64, file_header::HeaderFault> {
        sorted_runs::read_header(&self.file, STATE_RUN).map(|(number, _)| number)
    }

    /// Returns `false` if it certainly has no change of `key`.
    pub(crate) fn may_contain(&self, key: &StateKey) -> Result<bool, RunFault> {
        let (filter, blocks) = (self.info.filter, self.info.filter_blocks);
        filter::may_contain(&self.file, filter, blocks, filter::hash(key.as_bytes()))
            .map_err(|fault| self.with_path(fault))
    }

    /// Returns the change of `key`.
    pub(crate) fn get(&self, key: &StateKey) -> Result<Option<StateChange>, RunFault> {
        if !self.may_contain(key)? {
            return Ok(None);
        }
        let Some(mut leaf) = self.leaf_for(key.as_bytes())? else {
            return Ok(None);
        };
        while let Some(change) = leaf.take_change() {
            if change.key >= *key {
                return Ok(Some(change).filter(|change| change.key == *key));
            }
        }
        Ok(None)
    }

    /// Reads the leaf that would contain `key`.
    fn leaf_for(&self, key: &[u8]) -> Result<Option<StatePage>, RunFault> {
        let mut page = self.page(self.info.root)?;
        while page.kind == StatePageKind::Inner {
            let mut child = None;
            while let Some((first_key, offset)) = page.take_child() {
                if child.is_some() && first_key.as_bytes() > key {
                    break;
                }
                child = Some(offset);
            }
            let Some(offset) = child else { return Ok(None) };
            page = self.page(offset)?;
        }
        Ok(Some(page))
    }

    fn page(&self, offset: u64) -> Result<StatePage, RunFault> {
        StatePage::read(&self.file, offset).map_err(|fault| self.with_path(fault))
    }

    fn with_path(&self, fault: RunFault) -> RunFault {
        match fault {
            RunFault::Damaged(detail) => {
                RunFault::Damaged(format!("{}: {detail}", self.path.display()))
            }
            RunFault::Io(_) => fault,
        }
    }

    /// Iterates over the changes from `from` on, and after `after` if given, in key order.
    pub(crate) fn iter_from(
        &self,
        from: &[u8],
        after: Option<&StateKey>,
    ) -> Result<impl Iterator<Item = Result<StateChange, RunFault>> + '_, RunFault> {
        let from = after.map_or(from, |after| after.as_bytes().max(from)).to_vec();
        let excluded = after.cloned();
        let mut leaf = self.leaf_for(&from)?;
        let changes = std::iter::from_fn(move || {
            loop {
                let page = leaf.as_mut()?;
                if let Some(change) =
                    (page.kind == StatePageKind::Leaf).then(|| page.take_change()).flatten()
                {
                    return Some(Ok(change));
                }
                // After a leaf comes the next one, an inner page to skip, or the filter.
                let end = page.end;
                if end >= self.info.filter {
                    leaf = None;
                    return None;
                }
                match self.page(end) {
                    Ok(next) => leaf = Some(next),
                    Err(fault) => {
                        leaf = None;
                        return Some(Err(fault));
                    }
                }
            }
        });
        Ok(changes.skip_while(move |change| {
            change.as_ref().is_ok_and(|change| {
                change.key.as_bytes() < from.as_slice()
                    || excluded.as_ref().is_some_and(|after| change.key == *after)
            })
        }))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::Version;

    fn key(n: u64) -> StateKey {
        StateKey::new(format!("key/{n:08}")).unwrap()
    }

    fn change(n: u64) -> StateChange {
        let value = if n.is_multiple_of(500) { vec![7; 20_000] } else { vec![1; 30] };
        let put = (!n.is_multiple_of(7)).then(|| (Bytes::from(value), Some(Timestamp(n))));
        StateChange { key: key(n), version: Version(n), put }
    }

    fn run_of(count: u64) -> (tempfile::TempDir, StateRun) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1.kv");
        // Only even keys, so that odd ones are absent.
        let changes = (0..count).map(|n| Ok(change(n * 2)));
        let run = write_run(&FileSystem::Os, &path, 1, 0, count, changes).unwrap().unwrap();
        (folder, run)
    }

    #[test]
    fn finds_every_entry_in_small_and_large_runs() {
        for count in [1, 2, 60, 61, 5000, 40_000] {
            let (_folder, run) = run_of(count);
            assert_eq!(run.info.entries, count);
            for n in (0..count * 2 + 2).step_by(if count > 5000 { 97 } else { 1 }) {
                let expected = (n % 2 == 0 && n < count * 2).then(|| change(n));
                assert_eq!(run.get(&key(n)).unwrap(), expected, "{n} of {count}");
            }
            let all: Vec<_> = run.iter_from(b"", None).unwrap().map(Result::unwrap).collect();
            assert_eq!(all.len() as u64, count);
            assert!(all.iter().enumerate().all(|(i, found)| *found == change(i as u64 * 2)));
            let middle = count / 2;
            let rest = run.iter_from(b"key/", Some(&key(middle))).unwrap();
            let first = rest.map(Result::unwrap).next().map(|change| change.key);
            let expected = (middle / 2 + 1) * 2;
            assert_eq!(first, (expected < count * 2).then(|| key(expected)), "{count}");
        }
    }

    #[test]
    fn leaves_no_file_without_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1.kv");
        assert!(write_run(&FileSystem::Os, &path, 1, 0, 5, std::iter::empty()).unwrap().is_none());
        assert!(!path.exists());
    }

    #[test]
    fn a_flipped_bit_never_hides_or_changes_an_entry() {
        let (_folder, run) = run_of(3000);
        let whole = std::fs::read(&run.path).unwrap();
        let mut noticed = 0;
        for bit in (HEADER_BYTES * 8..whole.len() * 8).step_by(20_011) {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&run.path, flipped).unwrap();
            for n in (0..6000).step_by(6) {
                match run.get(&key(n)) {
                    Ok(found) => assert_eq!(found, Some(change(n)), "bit {bit}"),
                    Err(_) => noticed += 1,
                }
            }
        }
        assert!(noticed > 0);
    }
}
