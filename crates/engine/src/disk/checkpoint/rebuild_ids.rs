//! Rebuilds the id runs from the segments, after one of them turned out to be damaged or missing.

use std::io;
use std::mem;
use std::ops::Range;
use std::sync::Arc;

use prombus_proto::{Seq, Topic};

use super::catalog::{Catalog, CatalogTopic};
use super::run_task::{Abandon, Replacement};
use crate::disk::ids::recent::IdCoverage;
use crate::disk::ids::run::{IdRun, write_run};
use crate::disk::ids::{self, IdEntry, IdSeed, TopicOrdinal};
use crate::disk::read::events;
use crate::disk::segment::monotonic_ids::MonotonicIds;
use crate::disk::shared::Shared;
use crate::disk::storage::quarantine::link_into_quarantine;
use crate::{Damaged, ReadBudget, ReadError, Unavailable};

/// How many ids are sorted in memory at a time.
const IDS_PER_RUN: usize = 1 << 20;
const BYTES_PER_READ: usize = 1 << 20;

/// Replaces all id runs. Hashes the ids that the segments alone do not find, which in most stores are
/// few: with all of them, one flipped bit could fill the disk.
pub(super) struct IdRebuild {
    old: Vec<Arc<IdRun>>,
    topics: Vec<TopicRange>,
    store_seed: u64,
    /// The numbers of the new runs: enough for all ids, and for merging the runs.
    numbers: Range<u64>,
    /// How many ids of deleted topics it removes at most.
    dead_ids: u64,
}

/// The events of a topic that are in segments.
struct TopicRange {
    name: Topic,
    ordinal: TopicOrdinal,
    first: Seq,
    last: Seq,
}

impl TopicRange {
    fn of((name, row): (&Topic, &CatalogTopic)) -> Option<Self> {
        let last = row.segments.last()?.last;
        Some(Self { name: name.clone(), ordinal: row.ordinal, first: row.first, last })
    }

    const fn events(&self) -> u64 {
        (self.last.0 + 1).saturating_sub(self.first.0)
    }
}

impl IdRebuild {
    pub(super) fn new(shared: &Shared, catalog: &mut Catalog) -> Self {
        let old = shared.ids().index.runs.clone();
        let topics: Vec<_> = catalog.topics.iter().filter_map(TopicRange::of).collect();
        let ids: u64 = topics.iter().map(TopicRange::events).sum();
        let start = catalog.next_run;
        // There are fewer merges than runs.
        catalog.next_run += 2 * (ids / IDS_PER_RUN as u64 + 1);
        let (store_seed, dead_ids) = (catalog.store_seed, catalog.dead_ids);
        Self { old, topics, store_seed, numbers: start..catalog.next_run, dead_ids }
    }

    /// Writes the new runs, and links damaged old ones into quarantine.
    pub(super) fn run(self, shared: &Shared, abandon: &Abandon) -> io::Result<Option<Replacement>> {
        let Self { old, topics, store_seed, numbers, dead_ids } = self;
        let mut writer = RunWriter {
            shared,
            numbers: numbers.clone(),
            runs: Vec::new(),
            entries: Vec::new(),
            coverage: IdCoverage::default(),
        };
        let written = writer.write(&topics, store_seed, abandon);
        match written.and_then(|()| preserve_damaged(shared, &old, abandon)) {
            Ok(()) => {
                let new = writer.runs;
                Ok(Some(Replacement::Ids { old, new, is_rebuild: true, dead_ids }))
            }
            Err(error) => {
                let fs = shared.layout.fs();
                numbers.for_each(|number| drop(fs.remove_file(&shared.layout.id_run(number))));
                if abandon.is_set() { Ok(None) } else { Err(error) }
            }
        }
    }
}

fn preserve_damaged(shared: &Shared, runs: &[Arc<IdRun>], abandon: &Abandon) -> io::Result<()> {
    for run in runs {
        abandon.check()?;
        if run.is_damaged() {
            link_into_quarantine(&shared.layout, &run.path)?;
        }
    }
    Ok(())
}

/// The runs written so far, and the entries of the next one.
struct RunWriter<'a> {
    shared: &'a Shared,
    numbers: Range<u64>,
    runs: Vec<Arc<IdRun>>,
    entries: Vec<IdEntry>,
    coverage: IdCoverage,
}

impl RunWriter<'_> {
    fn write(
        &mut self,
        topics: &[TopicRange],
        store_seed: u64,
        abandon: &Abandon,
    ) -> io::Result<()> {
        for topic in topics {
            self.add_topic(topic, IdSeed::of(store_seed, &topic.name), abandon)?;
        }
        if !self.entries.is_empty() {
            self.write_run(abandon)?;
        }
        self.shared.layout.fs().sync_folder(&self.shared.layout.ids())
    }

    fn add_topic(&mut self, topic: &TopicRange, seed: IdSeed, abandon: &Abandon) -> io::Result<()> {
        let mut monotonic = MonotonicIds::default();
        let mut from = topic.first;
        while from <= topic.last {
            abandon.check()?;
            let budget = ReadBudget::of_bytes(BYTES_PER_READ);
            let events = match events::read(self.shared, &topic.name, from, budget) {
                Ok(page) => page.events,
                Err(ReadError::Damaged(Damaged::Events { last, .. })) => {
                    from = last.next();
                    continue;
                }
                Err(error) => return Err(into_io(error)),
            };
            let Some(last) = events.last() else { break };
            from = last.seq.next();
            for event in events.iter().take_while(|event| event.seq <= topic.last) {
                let time_ordered = event.id.time_ordered();
                if let Some(id) = time_ordered {
                    if !monotonic.cover(event.seq) {
                        monotonic = MonotonicIds::around(self.shared, &topic.name, event.seq)?;
                    }
                    if monotonic.contain(event.seq, id) {
                        continue;
                    }
                }
                let (hash, topic) = (seed.hash(&event.id), topic.ordinal);
                self.entries.push(IdEntry { hash, topic, seq: event.seq });
                self.coverage.add(time_ordered);
            }
            if self.entries.len() >= IDS_PER_RUN {
                self.write_run(abandon)?;
            }
        }
        Ok(())
    }

    /// Writes the entries gathered so far as one run, and merges the runs as checkpoints do: a look-up
    /// may have to read each of them.
    fn write_run(&mut self, abandon: &Abandon) -> io::Result<()> {
        self.entries.sort_unstable();
        let number = self.take_number();
        let (fs, path) = (self.shared.layout.fs(), self.shared.layout.id_run(number));
        let (coverage, count) = (mem::take(&mut self.coverage), self.entries.len() as u64);
        let entries = self.entries.drain(..).map(Ok);
        let run = write_run(fs, &path, number, 0, coverage, count, entries)?;
        self.runs.push(Arc::new(run));
        while let Some(due) = ids::merge::due(&self.runs) {
            let number = self.take_number();
            let (fs, path) = (self.shared.layout.fs(), self.shared.layout.id_run(number));
            let merged = ids::merge::merge(fs, &due, &path, number, |_| true, abandon)?;
            self.runs.retain(|run| !due.iter().any(|old| Arc::ptr_eq(old, run)));
            self.runs.extend(merged.map(Arc::new));
            due.iter().for_each(|run| drop(fs.remove_file(&run.path)));
        }
        Ok(())
    }

    fn take_number(&mut self) -> u64 {
        self.numbers.next().expect("numbers were reserved for all ids")
    }
}

/// Keeps the error of the operating system, which tells whether to try again.
fn into_io(error: ReadError) -> io::Error {
    match &error {
        ReadError::Unavailable(Unavailable::Io { source, .. }) => match source.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::new(source.kind(), error),
        },
        _ => io::Error::other(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DiskOptions;
    use crate::disk::ids::IdHash;
    use crate::disk::read::view::View;
    use crate::disk::storage::layout::Layout;

    #[test]
    fn merges_the_runs_that_it_writes() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::new(folder.path().to_owned());
        layout.create_folders().unwrap();
        let shared = Shared::new(layout, DiskOptions::at(folder.path()), View::new(1));
        let mut writer = RunWriter {
            shared: &shared,
            numbers: 1..200,
            runs: Vec::new(),
            entries: Vec::new(),
            coverage: IdCoverage::default(),
        };
        for run in 0..100u64 {
            let ids = (0..10).map(|i| run * 10 + i);
            writer.entries.extend(ids.map(|n| IdEntry {
                hash: IdHash(n.wrapping_mul(0x9E37_79B9_7F4A_7C15)),
                topic: TopicOrdinal(0),
                seq: Seq(n),
            }));
            writer.write_run(&Abandon::default()).unwrap();
        }
        assert!(writer.runs.len() < 3 * 8, "{} runs", writer.runs.len());
        let entries = writer.runs.iter().flat_map(|run| run.iter());
        let mut seqs: Vec<_> = entries.map(|entry| entry.unwrap().seq.0).collect();
        seqs.sort_unstable();
        assert!(seqs.into_iter().eq(0..1000));
        let mut named: Vec<_> = writer.runs.iter().map(|run| run.info.number).collect();
        named.sort_unstable();
        assert_eq!(shared.layout.numbered(&shared.layout.ids(), "ids").unwrap(), named);
    }
}
