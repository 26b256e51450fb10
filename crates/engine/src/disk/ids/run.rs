//! A sorted run of hashed ids.
//!
//! A header, a Bloom filter, then pages of 4 KiB. Hashes are evenly distributed, so the hash of an id
//! determines its page; entries that do not fit spill into the next page. The filter answers nearly
//! every look-up of an absent id; any other reads one page, hardly ever two. Version 1 has no filter.
//!
//! ```text
//! file:  header | filter | page…
//! page:  checksum u32 | entries u16 | spills u8 | 0 u8 | (hash u64 | topic u32 | seq u64)…
//! ```

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{Buf, BufMut};
use prombus_proto::Seq;

use super::recent::IdCoverage;
use super::{IdEntry, IdHash, TopicOrdinal};
use crate::disk::sorted_runs::filter::{self, Filter, SortedFilterWriter};
use crate::disk::sorted_runs::{self, RunFault, page_checksum};
use crate::disk::storage::file_header::{self, HEADER_BYTES, HeaderFault, ID_RUN};
use crate::disk::storage::file_system::{Access, File, FileSystem, SequentialWriter};

pub(crate) const PAGE_BYTES: usize = 4096;
const PAGE_HEAD_BYTES: usize = 8;
const ENTRY_BYTES: usize = 20;
const ENTRIES_PER_PAGE: usize = (PAGE_BYTES - PAGE_HEAD_BYTES) / ENTRY_BYTES;
/// The average fill of a page; the rest absorbs an uneven distribution.
const ENTRIES_PLANNED_PER_PAGE: u64 = ENTRIES_PER_PAGE as u64 * 4 / 5;
/// After so many pages the operating system starts to write them back, so that little is left for the
/// sync at the end, in which an abandoned merge cannot stop.
const PAGES_PER_WRITE_BACK: u64 = 2048;

/// A sorted run of hashed ids.
#[derive(Debug)]
pub(crate) struct IdRun {
    pub(crate) info: IdRunInfo,
    pub(crate) path: PathBuf,
    /// `None` if the file is missing, if its header is damaged, or if another run is in its place.
    file: Option<File>,
    /// `None` in a file of version 1.
    filter: Option<Filter>,
    /// Set when a merge could not read all of it: it is not merged again, but rebuilt.
    is_set_aside: AtomicBool,
}

/// What the catalog records about an id run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IdRunInfo {
    pub(crate) number: u64,
    /// How many merges its entries went through.
    pub(crate) level: u32,
    /// The number of pages that hashes map to. Spilling may have added more at the end.
    pub(crate) home_pages: u64,
    pub(crate) coverage: IdCoverage,
}

impl IdRunInfo {
    /// The length of the file, without a filter and without pages that spilling added.
    pub(crate) const fn least_bytes(&self) -> u64 {
        HEADER_BYTES as u64 + self.home_pages * PAGE_BYTES as u64
    }

    /// About how many entries the run has.
    pub(crate) const fn planned_entries(&self) -> u64 {
        self.home_pages * ENTRIES_PLANNED_PER_PAGE
    }
}

/// The number of blocks of the filter of a run.
pub(crate) const fn filter_blocks(home_pages: u64) -> u64 {
    filter::blocks_for(home_pages * ENTRIES_PLANNED_PER_PAGE)
}

/// The filter of a run, whose place follows from the number of pages.
const fn filter_of(home_pages: u64) -> Filter {
    Filter::at(HEADER_BYTES as u64, filter_blocks(home_pages))
}

/// Returns which of `pages` pages a hash maps to.
fn home_page(hash: IdHash, pages: u64) -> u64 {
    u64::try_from((u128::from(hash.0) * u128::from(pages)) >> 64).unwrap_or(u64::MAX)
}

/// Writes `entries`, which are sorted and about `count`, and syncs the file.
pub(crate) fn write_run(
    fs: &FileSystem,
    path: &Path,
    number: u64,
    level: u32,
    coverage: IdCoverage,
    count: u64,
    entries: impl Iterator<Item = io::Result<IdEntry>>,
) -> io::Result<IdRun> {
    let home_pages = count.div_ceil(ENTRIES_PLANNED_PER_PAGE).max(1);
    let file = sorted_runs::create(fs, path)?;
    file.write_all_at(&file_header::encode(ID_RUN, number), 0)?;
    let filter = filter_of(home_pages);
    let pages_at = HEADER_BYTES as u64 + filter.bytes();
    let pages = SequentialWriter::starting_at(&file, pages_at);
    let mut filter = SortedFilterWriter::new(&file, filter);
    let mut out = BufWriter::with_capacity(1 << 18, pages);
    let mut page = IdPageWriter { out: &mut out, number: 0, entries: Vec::new() };
    for entry in entries {
        let entry = entry?;
        filter.add(entry.hash.0)?;
        let home = home_page(entry.hash, home_pages);
        while page.number < home || page.entries.len() == ENTRIES_PER_PAGE {
            // A full page spills if the next entry maps to it, or to a page before it.
            let spills = page.entries.len() == ENTRIES_PER_PAGE && home <= page.number;
            page.finish(spills)?;
            if page.number.is_multiple_of(PAGES_PER_WRITE_BACK) {
                let end = pages_at + page.number * PAGE_BYTES as u64;
                file.start_write_back(end - PAGES_PER_WRITE_BACK * PAGE_BYTES as u64, end);
            }
        }
        page.entries.push(entry);
    }
    while page.number < home_pages {
        page.finish(false)?;
    }
    if !page.entries.is_empty() {
        page.finish(false)?;
    }
    out.flush()?;
    drop(out);
    let filter = Some(filter.finish()?);
    file.sync_data()?;
    let info = IdRunInfo { number, level, home_pages, coverage };
    let (path, is_set_aside) = (path.to_owned(), AtomicBool::new(false));
    Ok(IdRun { info, path, file: Some(file), filter, is_set_aside })
}

struct IdPageWriter<'a, W: Write> {
    out: &'a mut W,
    number: u64,
    entries: Vec<IdEntry>,
}

impl<W: Write> IdPageWriter<'_, W> {
    fn finish(&mut self, spills: bool) -> io::Result<()> {
        let mut page = Vec::with_capacity(PAGE_BYTES);
        page.put_u32_le(0);
        page.put_u16_le(u16::try_from(self.entries.len()).expect("a page has few entries"));
        page.put_u8(u8::from(spills));
        page.put_u8(0);
        for entry in self.entries.drain(..) {
            page.put_u64_le(entry.hash.0);
            page.put_u32_le(entry.topic.0);
            page.put_u64_le(entry.seq.0);
        }
        page.resize(PAGE_BYTES, 0);
        let sum = page_checksum(self.number, &page);
        page[..4].copy_from_slice(&sum.to_le_bytes());
        self.out.write_all(&page)?;
        self.number += 1;
        Ok(())
    }
}

impl IdRun {
    /// Opens a run. [`IdRun::check_header`] has to be called before it is used.
    pub(crate) fn open(fs: &FileSystem, path: PathBuf, info: IdRunInfo) -> io::Result<Self> {
        let file = Some(fs.open(&path, Access::Read)?);
        Ok(Self { info, file, path, filter: None, is_set_aside: AtomicBool::new(false) })
    }

    /// A run whose file is missing. A look-up in it fails, so that an id never seems to be new.
    pub(crate) const fn missing(path: PathBuf, info: IdRunInfo) -> Self {
        Self { info, path, file: None, filter: None, is_set_aside: AtomicBool::new(true) }
    }

    /// Checks the kind, version and number of its file. If its header is damaged, or if it is the file
    /// of another run, it is not used.
    pub(crate) fn check_header(&mut self) -> Result<(), HeaderFault> {
        let Some(file) = self.file.take() else { return Ok(()) };
        let (number, version) = sorted_runs::read_header(&file, ID_RUN)?;
        if number != self.info.number {
            return Err(HeaderFault::Damaged("the header belongs to a file of another number"));
        }
        self.filter = (version > 1).then(|| filter_of(self.info.home_pages));
        self.file = Some(file);
        Ok(())
    }

    fn file(&self) -> Result<&File, RunFault> {
        let missing = || RunFault::Damaged("the file is missing or not usable".to_owned());
        self.file.as_ref().ok_or_else(missing)
    }

    /// The offset of the first page.
    fn pages_at(&self) -> u64 {
        HEADER_BYTES as u64 + self.filter.as_ref().map_or(0, Filter::bytes)
    }

    /// Adds the positions of `hash` in `topic` to `found`.
    pub(crate) fn find(
        &self,
        hash: IdHash,
        topic: TopicOrdinal,
        found: &mut Vec<Seq>,
    ) -> Result<(), RunFault> {
        if let Some(filter) = &self.filter
            && !filter.may_contain(self.file()?, hash.0)?
        {
            return Ok(());
        }
        let mut number = home_page(hash, self.info.home_pages);
        loop {
            let page = self.page(number)?;
            let start = page.entries.partition_point(|entry| entry.hash < hash);
            found.extend(
                page.entries[start..]
                    .iter()
                    .take_while(|entry| entry.hash == hash)
                    .filter(|entry| entry.topic == topic)
                    .map(|entry| entry.seq),
            );
            // Entries are sorted across pages: a greater hash ends the search.
            if !page.spills || page.entries.last().is_some_and(|last| last.hash > hash) {
                return Ok(());
            }
            number += 1;
        }
    }

    fn page(&self, number: u64) -> Result<IdPage, RunFault> {
        let mut bytes = [0; PAGE_BYTES];
        self.file()?
            .read_exact_at(&mut bytes, self.pages_at() + number * PAGE_BYTES as u64)
            .map_err(|error| RunFault::of_read(&format!("page {number}"), error))?;
        let Some(count) = entries_of_page(number, &bytes) else {
            return Err(RunFault::Damaged(format!("page {number}: checksum mismatch")));
        };
        let mut fields = &bytes[6..];
        let spills = fields.get_u8() != 0;
        fields.advance(1);
        let entries = (0..count)
            .map(|_| IdEntry {
                hash: IdHash(fields.get_u64_le()),
                topic: TopicOrdinal(fields.get_u32_le()),
                seq: Seq(fields.get_u64_le()),
            })
            .collect();
        Ok(IdPage { entries, spills })
    }

    /// Iterates over all entries, in order. Damage is an error of the kind `InvalidData`.
    pub(crate) fn iter(&self) -> impl Iterator<Item = io::Result<IdEntry>> + '_ {
        let bytes = self.file.as_ref().and_then(|file| file.len().ok()).unwrap_or(0);
        let pages = bytes.saturating_sub(self.pages_at()) / PAGE_BYTES as u64;
        (0..pages.max(self.info.home_pages)).flat_map(|number| match self.page(number) {
            Ok(page) => page.entries.into_iter().map(Ok).collect::<Vec<_>>(),
            Err(fault) => vec![Err(fault.into_io())],
        })
    }

    pub(crate) fn is_set_aside(&self) -> bool {
        self.is_set_aside.load(Ordering::Relaxed)
    }

    /// Sets it aside if any of it is damaged.
    pub(crate) fn set_aside_if_damaged(&self) {
        self.is_set_aside.store(self.is_damaged(), Ordering::Relaxed);
    }

    /// Reads all of it and returns `true` if any of it is damaged.
    pub(crate) fn is_damaged(&self) -> bool {
        if let (Ok(file), Some(filter)) = (self.file(), &self.filter)
            && matches!(filter.check(file), Err(RunFault::Damaged(_)))
        {
            return true;
        }
        let is_damage = |error: &io::Error| error.kind() == io::ErrorKind::InvalidData;
        self.iter().any(|entry| entry.as_ref().is_err_and(is_damage))
    }
}

/// Returns how many entries the page `number` has, or `None` if its checksum does not match.
pub(crate) fn entries_of_page(number: u64, page: &[u8; PAGE_BYTES]) -> Option<usize> {
    let mut fields = &page[..];
    let sum = fields.get_u32_le();
    let count = usize::from(fields.get_u16_le());
    (page_checksum(number, page) == sum && count <= ENTRIES_PER_PAGE).then_some(count)
}

struct IdPage {
    entries: Vec<IdEntry>,
    spills: bool,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use rustix::io::Errno;

    use super::*;
    use crate::disk::storage::file_system::simulated::{Faults, SimulatedDisk};

    fn run_of(entries: &[IdEntry]) -> (tempfile::TempDir, IdRun) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1.ids");
        let entries_iter = entries.iter().map(|entry| Ok(*entry));
        let coverage = IdCoverage { v7_millis: None, others: true };
        let run =
            write_run(&FileSystem::Os, &path, 1, 0, coverage, entries.len() as u64, entries_iter)
                .unwrap();
        (folder, run)
    }

    fn found(run: &IdRun, hash: IdHash, topic: TopicOrdinal) -> Vec<Seq> {
        let mut found = Vec::new();
        run.find(hash, topic, &mut found).unwrap();
        found
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn finds_every_entry_and_nothing_else(
            // Values close together map to a few pages, which spill.
            hashes in proptest::collection::vec(prop_oneof![any::<u64>(), 0u64..300, (u64::MAX - 300)..u64::MAX], 0..3000),
        ) {
            let mut entries: Vec<_> = hashes
                .iter()
                .zip(0u32..)
                .map(|(hash, i)| IdEntry { hash: IdHash(*hash), topic: TopicOrdinal(i % 3), seq: Seq(i.into()) })
                .collect();
            entries.sort_unstable();
            let (_folder, run) = run_of(&entries);
            prop_assert_eq!(run.iter().collect::<io::Result<Vec<_>>>().unwrap(), entries.clone());
            for entry in &entries {
                prop_assert!(found(&run, entry.hash, entry.topic).contains(&entry.seq));
                let absent = IdHash(entry.hash.0 ^ 0x5555_0000_0000);
                if entries.binary_search_by_key(&absent, |entry| entry.hash).is_err() {
                    prop_assert_eq!(found(&run, absent, entry.topic), vec![]);
                }
            }
        }
    }

    #[test]
    fn detects_a_flipped_bit() {
        let entries: Vec<_> = (0..1000u64)
            .map(|i| IdEntry { hash: IdHash(i << 54), topic: TopicOrdinal(0), seq: Seq(i) })
            .collect();
        let (_folder, run) = run_of(&entries);
        let whole = std::fs::read(&run.path).unwrap();
        for bit in (HEADER_BYTES * 8..whole.len() * 8).step_by(977) {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&run.path, flipped).unwrap();
            assert!(run.is_damaged(), "bit {bit}");
            let mut reopened = IdRun::open(&FileSystem::Os, run.path.clone(), run.info).unwrap();
            reopened.check_header().unwrap();
            for entry in &entries {
                let mut found = Vec::new();
                // An error, or the right answer: never an id that seems to be absent.
                if reopened.find(entry.hash, entry.topic, &mut found).is_ok() {
                    assert_eq!(found, [entry.seq], "bit {bit}");
                }
            }
        }
    }

    #[test]
    fn absent_ids_are_answered_without_reading_a_page() {
        let disk = SimulatedDisk::new(1);
        let fs = FileSystem::Simulated(Arc::clone(&disk));
        fs.create_folder(Path::new("/ids")).unwrap();
        let entries = (0..10_000u64)
            .map(|i| Ok(IdEntry { hash: IdHash(i << 50), topic: TopicOrdinal(0), seq: Seq(i) }));
        let coverage = IdCoverage { v7_millis: None, others: true };
        let path = Path::new("/ids/1.ids");
        let run = write_run(&fs, path, 1, 0, coverage, 10_000, entries).unwrap();
        disk.set_faults(Some(Faults { error: Errno::NOMEM, one_in: 1 }));
        let reads_a_page = |hash| run.find(IdHash(hash), TopicOrdinal(0), &mut Vec::new()).is_err();
        assert!((0..10_000).all(|i| reads_a_page(i << 50)));
        let absent = (0..10_000u64).map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let passed = absent.filter(|hash| reads_a_page(*hash)).count();
        assert!(passed < 200, "{passed} of 10000 read a page");
    }
}
