//! Rebuilds the id runs from the segments, after one of them turned out to be damaged.

use std::io;
use std::mem;
use std::sync::Arc;

use prombus_proto::Topic;

use super::Checkpointer;
use super::catalog::{Catalog, CatalogTopic};
use crate::disk::ids::recent::IdCoverage;
use crate::disk::ids::run::{IdRun, write_run};
use crate::disk::ids::{IdEntry, IdSeed};
use crate::disk::read::events;
use crate::disk::shared::Shared;
use crate::disk::storage::quarantine::link_into_quarantine;
use crate::{Damaged, ReadBudget, ReadError};

/// How many ids are sorted in memory at a time.
const IDS_PER_RUN: usize = 1 << 20;

/// The runs written so far, and the entries of the next one.
struct Rebuild<'a> {
    shared: &'a Shared,
    catalog: Catalog,
    runs: Vec<Arc<IdRun>>,
    entries: Vec<IdEntry>,
    coverage: IdCoverage,
}

impl Checkpointer {
    /// Replaces all id runs. Every id is hashed, UUIDv7 as well: which of them were newer than all
    /// before is unknown once events were trimmed.
    pub(super) fn rebuild_ids(&mut self) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let mut rebuild = Rebuild {
            shared: &shared,
            catalog: self.catalog.clone(),
            runs: Vec::new(),
            entries: Vec::new(),
            coverage: IdCoverage::default(),
        };
        for (topic, row) in &self.catalog.topics {
            rebuild.add_topic(topic, row)?;
        }
        rebuild.write_run()?;
        let Rebuild { mut catalog, runs, .. } = rebuild;
        shared.layout.fs().sync_folder(&shared.layout.ids())?;
        catalog.id_runs = runs.iter().map(|run| run.info).collect();
        self.replace_catalog(catalog)?;
        let old = mem::replace(&mut shared.ids_mut().index.runs, runs);
        for damaged in old.iter().filter(|run| run.is_damaged()) {
            link_into_quarantine(&shared.layout, &damaged.path)?;
        }
        self.remove_files(&old.iter().map(|run| run.path.clone()).collect::<Vec<_>>());
        Ok(())
    }
}

impl Rebuild<'_> {
    fn add_topic(&mut self, topic: &Topic, row: &CatalogTopic) -> io::Result<()> {
        let seed = IdSeed::of(self.catalog.store_seed, topic);
        let mut from = row.first;
        while row.segments.last().is_some_and(|segment| from <= segment.last) {
            let events = match events::read(self.shared, topic, from, ReadBudget::of_bytes(1 << 20))
            {
                Ok(page) => page.events,
                Err(ReadError::Damaged(Damaged::Events { last, .. })) => {
                    from = last.next();
                    continue;
                }
                Err(error) => return Err(io::Error::other(error)),
            };
            let Some(last) = events.last() else { break };
            from = last.seq.next();
            for event in &events {
                let (hash, topic) = (seed.hash(&event.id), row.ordinal);
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
        let number = self.catalog.take_run_number();
        let path = self.shared.layout.id_run(number);
        let count = self.entries.len() as u64;
        let coverage = mem::take(&mut self.coverage);
        let entries = self.entries.drain(..).map(Ok);
        self.runs.push(Arc::new(write_run(
            self.shared.layout.fs(),
            &path,
            number,
            0,
            coverage,
            count,
            entries,
        )?));
        Ok(())
    }
}
