//! A sorted file of ids.
//!
//! A header, then pages of 4 KiB. Hashes are spread evenly, so an id's page is where its hash says;
//! what does not fit there spills into the next. A look-up reads one page, hardly ever two, and
//! nothing of the file is kept in memory.
//!
//! ```text
//! page:  checksum u32 | entries u16 | spills u8 | 0 u8 | (hash u64 | topic u32 | seq u64)…
//! ```

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytes::{Buf, BufMut};
use prombus_proto::Seq;

use super::recent::IdKinds;
use super::{IdHash, IdPlace, Ordinal};
use crate::disk::checksum::checksum;
use crate::disk::file_header::{self, HEADER_BYTES, HeaderFault, ID_RUN};

const PAGE_BYTES: usize = 4096;
const PAGE_HEAD_BYTES: usize = 8;
const ENTRY_BYTES: usize = 20;
const ENTRIES_PER_PAGE: usize = (PAGE_BYTES - PAGE_HEAD_BYTES) / ENTRY_BYTES;
/// How full pages are made, on average: the rest is room for an uneven spread.
const ENTRIES_PLANNED_PER_PAGE: u64 = ENTRIES_PER_PAGE as u64 * 4 / 5;

/// A file of ids.
#[derive(Debug)]
pub(crate) struct IdRun {
    pub(crate) info: IdRunInfo,
    pub(crate) path: PathBuf,
    /// Nothing where it cannot tell about any id: it is missing, or another file is in its place.
    file: Option<File>,
}

/// What is to know about a file of ids without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IdRunInfo {
    pub(crate) number: u64,
    /// How often its entries were merged.
    pub(crate) level: u32,
    /// The pages that hashes are spread over; spilling may have added some behind.
    pub(crate) home_pages: u64,
    pub(crate) kinds: IdKinds,
}

/// Which of `pages` pages a hash belongs to.
fn home_page(hash: IdHash, pages: u64) -> u64 {
    u64::try_from((u128::from(hash.0) * u128::from(pages)) >> 64).unwrap_or(u64::MAX)
}

/// Writes `places`, which come sorted and are about `count`, and makes them durable.
pub(crate) fn write_run(
    path: &Path,
    number: u64,
    level: u32,
    kinds: IdKinds,
    count: u64,
    places: impl Iterator<Item = io::Result<IdPlace>>,
) -> io::Result<IdRun> {
    let home_pages = count.div_ceil(ENTRIES_PLANNED_PER_PAGE).max(1);
    let file = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
    let mut out = BufWriter::with_capacity(1 << 18, &file);
    out.write_all(&file_header::encode(ID_RUN, number))?;
    let mut page = PageWriter { out: &mut out, number: 0, entries: Vec::new() };
    for place in places {
        let place = place?;
        let home = home_page(place.hash, home_pages);
        while page.number < home || page.entries.len() == ENTRIES_PER_PAGE {
            // A full page whose next entry belongs to it, or to one before it, spills.
            let spills = page.entries.len() == ENTRIES_PER_PAGE && home <= page.number;
            page.finish(spills)?;
        }
        page.entries.push(place);
    }
    while page.number < home_pages {
        page.finish(false)?;
    }
    if !page.entries.is_empty() {
        page.finish(false)?;
    }
    out.flush()?;
    drop(out);
    file.sync_data()?;
    Ok(IdRun {
        info: IdRunInfo { number, level, home_pages, kinds },
        path: path.to_owned(),
        file: Some(file),
    })
}

struct PageWriter<'a, W: Write> {
    out: &'a mut W,
    number: u64,
    entries: Vec<IdPlace>,
}

impl<W: Write> PageWriter<'_, W> {
    fn finish(&mut self, spills: bool) -> io::Result<()> {
        let mut page = Vec::with_capacity(PAGE_BYTES);
        page.put_u32_le(0);
        page.put_u16_le(u16::try_from(self.entries.len()).expect("a page holds few entries"));
        page.put_u8(u8::from(spills));
        page.put_u8(0);
        for place in self.entries.drain(..) {
            page.put_u64_le(place.hash.0);
            page.put_u32_le(place.topic.0);
            page.put_u64_le(place.seq.0);
        }
        page.resize(PAGE_BYTES, 0);
        let sum = page_checksum(self.number, &page);
        page[..4].copy_from_slice(&sum.to_le_bytes());
        self.out.write_all(&page)?;
        self.number += 1;
        Ok(())
    }
}

/// Covers the page's number as well: a page in another's place does not fit.
fn page_checksum(number: u64, page: &[u8]) -> u32 {
    checksum(&page[4..]) ^ checksum(&number.to_le_bytes())
}

impl IdRun {
    pub(crate) fn open(path: PathBuf, info: IdRunInfo) -> io::Result<Self> {
        Ok(Self { info, file: Some(File::open(&path)?), path })
    }

    /// A file that is not there: a look-up in it is damage, never an id that is not stored.
    pub(crate) const fn missing(path: PathBuf, info: IdRunInfo) -> Self {
        Self { info, path, file: None }
    }

    /// Whether its file is what the catalog says. Another one in its place is not used.
    pub(crate) fn check_header(&mut self) -> Result<(), HeaderFault> {
        let Some(file) = &self.file else { return Ok(()) };
        let mut header = [0; HEADER_BYTES];
        file.read_exact_at(&mut header, 0)
            .map_err(|_| HeaderFault::Damaged("the header is cut off"))?;
        if file_header::decode(ID_RUN, &header)? != self.info.number {
            self.file = None;
            return Err(HeaderFault::Damaged("the header belongs to a file of another number"));
        }
        Ok(())
    }

    pub(crate) fn may_hold(&self, time: Option<u64>) -> bool {
        self.info.kinds.may_hold(time)
    }

    /// Adds the places of `hash` in `topic` to `found`, or says what is damaged.
    pub(crate) fn find(
        &self,
        hash: IdHash,
        topic: Ordinal,
        found: &mut Vec<Seq>,
    ) -> Result<(), String> {
        let mut number = home_page(hash, self.info.home_pages);
        loop {
            let page = self.page(number)?;
            let same = page.entries.partition_point(|place| place.hash < hash);
            found.extend(
                page.entries[same..]
                    .iter()
                    .take_while(|place| place.hash == hash)
                    .filter(|place| place.topic == topic)
                    .map(|place| place.seq),
            );
            // Entries are in order over the pages: one that is greater ends the search.
            if !page.spills || page.entries.last().is_some_and(|last| last.hash > hash) {
                return Ok(());
            }
            number += 1;
        }
    }

    fn page(&self, number: u64) -> Result<Page, String> {
        let Some(file) = &self.file else {
            return Err(format!("page {number}: the file is missing"));
        };
        let mut bytes = [0; PAGE_BYTES];
        file.read_exact_at(&mut bytes, HEADER_BYTES as u64 + number * PAGE_BYTES as u64)
            .map_err(|error| format!("page {number}: {error}"))?;
        let mut fields = &bytes[..];
        let sum = fields.get_u32_le();
        let count = usize::from(fields.get_u16_le());
        if page_checksum(number, &bytes) != sum || count > ENTRIES_PER_PAGE {
            return Err(format!("page {number}: the checksum does not fit"));
        }
        let spills = fields.get_u8() != 0;
        fields.advance(1);
        let entries = (0..count)
            .map(|_| IdPlace {
                hash: IdHash(fields.get_u64_le()),
                topic: Ordinal(fields.get_u32_le()),
                seq: Seq(fields.get_u64_le()),
            })
            .collect();
        Ok(Page { entries, spills })
    }

    /// All entries, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = io::Result<IdPlace>> + '_ {
        let metadata = self.file.as_ref().and_then(|file| file.metadata().ok());
        let bytes = metadata.map_or(0, |metadata| metadata.len());
        let pages = bytes.saturating_sub(HEADER_BYTES as u64) / PAGE_BYTES as u64;
        (0..pages.max(self.info.home_pages)).flat_map(|number| match self.page(number) {
            Ok(page) => page.entries.into_iter().map(Ok).collect::<Vec<_>>(),
            Err(detail) => vec![Err(io::Error::new(io::ErrorKind::InvalidData, detail))],
        })
    }

    /// Whether something in it cannot be read back.
    pub(crate) fn is_damaged(&self) -> bool {
        self.iter().any(|place| place.is_err())
    }

    /// About how many entries it has.
    pub(crate) const fn planned_entries(&self) -> u64 {
        self.info.home_pages * ENTRIES_PLANNED_PER_PAGE
    }
}

struct Page {
    entries: Vec<IdPlace>,
    spills: bool,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn run_of(places: &[IdPlace]) -> (tempfile::TempDir, IdRun) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1.ids");
        let places_iter = places.iter().map(|place| Ok(*place));
        let kinds = IdKinds { times: None, others: true };
        let run = write_run(&path, 1, 0, kinds, places.len() as u64, places_iter).unwrap();
        (folder, run)
    }

    fn found(run: &IdRun, hash: IdHash, topic: Ordinal) -> Vec<Seq> {
        let mut found = Vec::new();
        run.find(hash, topic, &mut found).unwrap();
        found
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn finds_all_that_is_there_and_nothing_else(
            // Few high bits: hashes crowd into some pages and spill over.
            hashes in proptest::collection::vec(prop_oneof![any::<u64>(), 0u64..300, (u64::MAX - 300)..u64::MAX], 0..3000),
        ) {
            let mut places: Vec<_> = hashes
                .iter()
                .zip(0u32..)
                .map(|(hash, i)| IdPlace { hash: IdHash(*hash), topic: Ordinal(i % 3), seq: Seq(i.into()) })
                .collect();
            places.sort_unstable();
            let (_folder, run) = run_of(&places);
            prop_assert_eq!(run.iter().collect::<io::Result<Vec<_>>>().unwrap(), places.clone());
            for place in &places {
                prop_assert!(found(&run, place.hash, place.topic).contains(&place.seq));
                let absent = IdHash(place.hash.0 ^ 0x5555_0000_0000);
                if places.binary_search_by_key(&absent, |place| place.hash).is_err() {
                    prop_assert_eq!(found(&run, absent, place.topic), vec![]);
                }
            }
        }
    }

    #[test]
    fn a_flipped_bit_is_noticed() {
        let places: Vec<_> = (0..1000u64)
            .map(|i| IdPlace { hash: IdHash(i << 54), topic: Ordinal(0), seq: Seq(i) })
            .collect();
        let (_folder, run) = run_of(&places);
        let whole = std::fs::read(&run.path).unwrap();
        for bit in (HEADER_BYTES * 8..whole.len() * 8).step_by(977) {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&run.path, flipped).unwrap();
            assert!(run.iter().any(|place| place.is_err()), "bit {bit}");
        }
    }
}
