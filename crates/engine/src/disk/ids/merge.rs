//! Merges id runs.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::IdEntry;
use super::recent::IdCoverage;
use super::run::{IdRun, write_run};
use crate::disk::checkpoint::run_task::Abandon;
use crate::disk::sorted_runs::{MergeSorted, RUNS_PER_LEVEL};
use crate::disk::storage::file_system::FileSystem;

/// Returns the runs to merge now, if any: those of the lowest level that has enough of them. Damaged
/// runs wait for a rebuild.
pub(crate) fn due(runs: &[Arc<IdRun>]) -> Option<Vec<Arc<IdRun>>> {
    let runs: Vec<_> = runs.iter().filter(|run| !run.is_set_aside()).collect();
    let mut levels: Vec<u32> = runs.iter().map(|run| run.info.level).collect();
    levels.sort_unstable();
    levels.dedup();
    levels.into_iter().find_map(|level| {
        let same: Vec<_> =
            runs.iter().copied().filter(|run| run.info.level == level).cloned().collect();
        (same.len() >= RUNS_PER_LEVEL).then_some(same)
    })
}

/// Writes all entries of `runs` for which `retain` holds into one run of the next level, or none if no
/// entry is left.
pub(crate) fn merge(
    fs: &FileSystem,
    runs: &[Arc<IdRun>],
    path: &Path,
    number: u64,
    retain: impl Fn(&IdEntry) -> bool,
    abandon: &Abandon,
) -> io::Result<Option<IdRun>> {
    let level = runs.iter().map(|run| run.info.level).max().unwrap_or(0) + 1;
    let mut coverage = IdCoverage::default();
    runs.iter().for_each(|run| coverage.join(&run.info.coverage));
    // The number of pages follows from the number of entries, so these are counted first: with a page
    // for every entry that was ever merged, the runs of trimmed topics would never shrink.
    let mut count = 0;
    for run in runs {
        for entry in run.iter() {
            abandon.check()?;
            count += u64::from(retain(&entry?));
        }
    }
    if count == 0 {
        return Ok(None);
    }
    let entries = MergeSorted::new(runs.iter().map(|run| run.iter()), IdEntry::cmp)
        .filter(|entry| entry.as_ref().map_or(true, &retain))
        .map(|entry| abandon.check().and(entry));
    write_run(fs, path, number, level, coverage, count, entries).map(Some)
}

#[cfg(test)]
mod tests {
    use prombus_proto::Seq;

    use super::*;
    use crate::disk::ids::{IdHash, TopicOrdinal};

    #[test]
    fn merges_all_retained_entries() {
        let folder = tempfile::tempdir().unwrap();
        let path = |number: u64| folder.path().join(format!("{number}.ids"));
        let entry = |i: u64| IdEntry { hash: IdHash(i << 50), topic: TopicOrdinal(0), seq: Seq(i) };
        let runs: Vec<_> = (0..8u64)
            .map(|r| {
                let entries = (0..500u64).map(|i| Ok(entry(i * 8 + r)));
                let coverage = IdCoverage { v7_millis: Some((r, r)), others: false };
                Arc::new(
                    write_run(&FileSystem::Os, &path(r), r, 0, coverage, 500, entries).unwrap(),
                )
            })
            .collect();
        assert!(due(&runs[..7]).is_none());
        let all = due(&runs).unwrap();
        let merge_from = |number: u64, first: u64| {
            let retain = |entry: &IdEntry| entry.seq >= Seq(first);
            merge(&FileSystem::Os, &all, &path(number), number, retain, &Abandon::default())
                .unwrap()
        };
        let merged = merge_from(9, 1000).unwrap();
        assert_eq!(merged.info.level, 1);
        assert_eq!(merged.info.coverage.v7_millis, Some((0, 7)));
        let seqs: Vec<_> = merged.iter().map(|entry| entry.unwrap().seq.0).collect();
        assert_eq!(seqs, (1000..4000).collect::<Vec<_>>());
        // As large as what is left.
        assert_eq!(merge_from(10, 3990).unwrap().info.home_pages, 1);
        assert!(merge_from(11, 4000).is_none());
        assert!(!path(11).exists());
    }
}
