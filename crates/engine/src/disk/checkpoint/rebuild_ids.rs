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
use crate::disk::ids::{IdEntry, IdSeed, TopicOrdinal};
use crate::disk::read::events;
use crate::disk::shared::Shared;
use crate::disk::storage::quarantine::link_into_quarantine;
use crate::{Damaged, ReadBudget, ReadError, Unavailable};

/// How many ids are sorted in memory at a time.
const IDS_PER_RUN: usize = 1 << 20;
const BYTES_PER_READ: usize = 1 << 20;

/// Replaces all id runs. Every id is hashed, UUIDv7 as well: which of them were newer than all before
/// is unknown once events were trimmed.
pub(super) struct IdRebuild {
    old: Vec<Arc<IdRun>>,
    topics: Vec<TopicRange>,
    store_seed: u64,
    /// The numbers of the new runs: enough for all ids.
    numbers: Range<u64>,
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
        catalog.next_run += ids / IDS_PER_RUN as u64 + 1;
        Self { old, topics, store_seed: catalog.store_seed, numbers: start..catalog.next_run }
    }

    /// Writes the new runs, and links damaged old ones into quarantine.
    pub(super) fn run(self, shared: &Shared, abandon: &Abandon) -> io::Result<Option<Replacement>> {
        let Self { old, topics, store_seed, numbers } = self;
        let mut writer = RunWriter {
            shared,
            numbers: numbers.clone(),
            runs: Vec::new(),
            entries: Vec::new(),
            coverage: IdCoverage::default(),
        };
        let written = writer.write(&topics, store_seed, abandon);
        match written.and_then(|()| preserve_damaged(shared, &old, abandon)) {
            Ok(()) => Ok(Some(Replacement::Ids { old, new: writer.runs, is_rebuild: true })),
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
            self.write_run()?;
        }
        self.shared.layout.fs().sync_folder(&self.shared.layout.ids())
    }

    fn add_topic(&mut self, topic: &TopicRange, seed: IdSeed, abandon: &Abandon) -> io::Result<()> {
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
                let (hash, topic) = (seed.hash(&event.id), topic.ordinal);
                self.entries.push(IdEntry { hash, topic, seq: event.seq });
                self.coverage.add(event.id.time_ordered());
            }
            if self.entries.len() >= IDS_PER_RUN {
                self.write_run()?;
            }
        }
        Ok(())
    }

    /// Writes the entries gathered so far as one run.
    fn write_run(&mut self) -> io::Result<()> {
        self.entries.sort_unstable();
        let number = self.numbers.next().expect("numbers were reserved for all ids");
        let (fs, path) = (self.shared.layout.fs(), self.shared.layout.id_run(number));
        let (coverage, count) = (mem::take(&mut self.coverage), self.entries.len() as u64);
        let entries = self.entries.drain(..).map(Ok);
        let run = write_run(fs, &path, number, 0, coverage, count, entries)?;
        self.runs.push(Arc::new(run));
        Ok(())
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
