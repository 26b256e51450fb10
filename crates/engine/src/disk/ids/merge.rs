//! Several files of ids become one.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::IdPlace;
use super::recent::IdKinds;
use super::run::{IdRun, write_run};

/// How many files of one level make one of the next.
pub(crate) const RUNS_PER_LEVEL: usize = 8;

/// The files to merge now, if any: the oldest level that has enough.
pub(crate) fn due(runs: &[Arc<IdRun>]) -> Option<Vec<Arc<IdRun>>> {
    let mut levels: Vec<u32> = runs.iter().map(|run| run.info.level).collect();
    levels.sort_unstable();
    levels.dedup();
    levels.into_iter().find_map(|level| {
        let same: Vec<_> = runs.iter().filter(|run| run.info.level == level).cloned().collect();
        (same.len() >= RUNS_PER_LEVEL).then_some(same)
    })
}

/// Writes all entries of `runs` that `keeps` into one file of the next level.
pub(crate) fn merge(
    runs: &[Arc<IdRun>],
    path: &Path,
    number: u64,
    keeps: impl Fn(&IdPlace) -> bool,
) -> io::Result<IdRun> {
    let level = runs.iter().map(|run| run.info.level).max().unwrap_or(0) + 1;
    let mut kinds = IdKinds::default();
    runs.iter().for_each(|run| kinds.join(&run.info.kinds));
    let count = runs.iter().map(|run| run.planned_entries()).sum();
    let sources = runs.iter().map(|run| run.iter()).collect();
    let places = InOrder::new(sources).filter(|place| place.as_ref().map_or(true, &keeps));
    write_run(path, number, level, kinds, count, places)
}

/// The smallest of all sources, again and again.
struct InOrder<I: Iterator<Item = io::Result<IdPlace>>> {
    sources: Vec<std::iter::Peekable<I>>,
}

impl<I: Iterator<Item = io::Result<IdPlace>>> InOrder<I> {
    fn new(sources: Vec<I>) -> Self {
        Self { sources: sources.into_iter().map(Iterator::peekable).collect() }
    }
}

impl<I: Iterator<Item = io::Result<IdPlace>>> Iterator for InOrder<I> {
    type Item = io::Result<IdPlace>;

    fn next(&mut self) -> Option<Self::Item> {
        // An error comes before any place, so that it is seen at once.
        let smallest = self
            .sources
            .iter_mut()
            .filter_map(|source| source.peek().map(|place| place.as_ref().ok().copied()))
            .min()?;
        self.sources
            .iter_mut()
            .find_map(|source| source.next_if(|place| place.as_ref().ok().copied() == smallest))
    }
}

#[cfg(test)]
mod tests {
    use prombus_proto::Seq;

    use super::*;
    use crate::disk::ids::{IdHash, Ordinal};

    #[test]
    fn the_merged_file_holds_what_is_kept_of_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = |number: u64| folder.path().join(format!("{number}.ids"));
        let place = |i: u64| IdPlace { hash: IdHash(i << 50), topic: Ordinal(0), seq: Seq(i) };
        let runs: Vec<_> = (0..8u64)
            .map(|r| {
                let places = (0..500u64).map(|i| Ok(place(i * 8 + r)));
                let kinds = IdKinds { times: Some((r, r)), others: false };
                Arc::new(write_run(&path(r), r, 0, kinds, 500, places).unwrap())
            })
            .collect();
        assert!(due(&runs[..7]).is_none());
        let all = due(&runs).unwrap();
        let merged = merge(&all, &path(9), 9, |place| place.seq >= Seq(1000)).unwrap();
        assert_eq!(merged.info.level, 1);
        assert_eq!(merged.info.kinds.times, Some((0, 7)));
        let seqs: Vec<_> = merged.iter().map(|place| place.unwrap().seq.0).collect();
        assert_eq!(seqs, (1000..4000).collect::<Vec<_>>());
    }
}
