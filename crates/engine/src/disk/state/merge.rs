//! Merges state runs; the newest change of each key wins.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use prombus_proto::Timestamp;

use super::change::StateChange;
use super::run::{StateRun, write_run};
use crate::StateKey;
use crate::disk::checkpoint::run_task::Abandon;
use crate::disk::sorted_runs::{MergeSorted, RUNS_PER_LEVEL, RunFault};
use crate::disk::storage::file_system::FileSystem;

/// Returns the runs to merge now, if any. They are adjacent, so that newer changes stay before older
/// ones. A single run is rewritten without its expired entries; all of them are once half of their entries
/// are deletes.
pub(crate) fn due(runs: &[Arc<StateRun>], now: Timestamp) -> Option<Range<usize>> {
    let is_over =
        |run: &StateRun, by: Option<Timestamp>| by.is_some_and(|at| at <= now) && !run.is_damaged();
    if runs.first().is_some_and(|oldest| is_over(oldest, oldest.info.all_expire_by)) {
        return Some(0..1);
    }
    if let Some(index) = runs.iter().position(|run| is_over(run, run.info.half_expire_by)) {
        return Some(index..index + 1);
    }
    // Together, the runs are rewritten without what deletes hide, and without the deletes.
    let entries: u64 = runs.iter().map(|run| run.info.entries).sum();
    let deletes: u64 = runs.iter().map(|run| run.info.deletes).sum();
    if deletes > 0 && deletes * 2 >= entries && !runs.iter().any(|run| run.is_damaged()) {
        return Some(0..runs.len());
    }
    // A damaged run stays as it is, and no merge spans it.
    let level = |run: &StateRun| (!run.is_damaged()).then_some(run.info.level);
    let mut start = 0;
    for end in 1..=runs.len() {
        if end == runs.len() || level(&runs[end]) != level(&runs[start]) {
            if end - start >= RUNS_PER_LEVEL && !runs[start].is_damaged() {
                return Some(start..end);
            }
            start = end;
        }
    }
    None
}

/// Marks the damaged ones of `runs` after a failed merge, so that it is not tried again.
pub(crate) fn mark_damaged(runs: &[Arc<StateRun>]) -> io::Result<()> {
    for run in runs {
        if !run.is_readable()? {
            run.set_damaged();
        }
    }
    Ok(())
}

/// Merges `runs`, which are ordered oldest first, into one run, or none if no entry is left. Drops
/// deleted and expired entries, unless one of the `older` runs may have a value that they hide.
pub(crate) fn merge(
    fs: &FileSystem,
    runs: &[Arc<StateRun>],
    older: &[Arc<StateRun>],
    path: &Path,
    number: u64,
    now: Timestamp,
    abandon: &Abandon,
) -> io::Result<Option<StateRun>> {
    let highest = runs.iter().map(|run| run.info.level).max().unwrap_or(0);
    let level = if runs.len() > 1 { highest + 1 } else { highest };
    let at_most = runs.iter().map(|run| run.info.entries).sum();
    let newest_first = runs
        .iter()
        .rev()
        .map(|run| run.iter_from(b"", None))
        .collect::<Result<Vec<_>, _>>()
        .map_err(RunFault::into_io)?;
    let by_key = |a: &StateChange, b: &StateChange| a.key.cmp(&b.key);
    let changes = newest_of_each_key(MergeSorted::new(newest_first, by_key)).filter_map(|change| {
        let check = || abandon.check().map_err(RunFault::Io);
        change.and_then(|change| check().and(still_needed(change, older, now))).transpose()
    });
    write_run(fs, path, number, level, at_most, changes)
}

/// Drops every change that follows a newer one of the same key.
fn newest_of_each_key(
    changes: impl Iterator<Item = Result<StateChange, RunFault>>,
) -> impl Iterator<Item = Result<StateChange, RunFault>> {
    let mut last: Option<StateKey> = None;
    changes.filter(move |change| {
        let Ok(change) = change else { return true };
        let is_newest = last.as_ref() != Some(&change.key);
        if is_newest {
            last = Some(change.key.clone());
        }
        is_newest
    })
}

/// Turns an expired put into a delete, and drops a delete that hides nothing.
fn still_needed(
    mut change: StateChange,
    older: &[Arc<StateRun>],
    now: Timestamp,
) -> Result<Option<StateChange>, RunFault> {
    if change.entry().is_some_and(|entry| entry.has_expired(now)) {
        change.put = None;
    }
    if change.put.is_some() {
        return Ok(Some(change));
    }
    for run in older {
        match run.may_contain(&change.key) {
            Ok(false) => {}
            // A damaged filter must not end all merges after it: keeping a delete is always right.
            Ok(true) | Err(RunFault::Damaged(_)) => return Ok(Some(change)),
            Err(fault) => return Err(fault),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::Version;

    fn change(key: &str, version: u64, put: Option<Option<u64>>) -> StateChange {
        StateChange {
            key: StateKey::new(key.to_owned()).unwrap(),
            version: Version(version),
            put: put.map(|expires| (Bytes::from_static(b"v"), expires.map(Timestamp))),
        }
    }

    #[test]
    fn newest_change_wins_and_needless_deletes_are_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = |n: u64| folder.path().join(format!("{n}.kv"));
        let run = |n: u64, changes: &[StateChange]| {
            let changes = changes.iter().cloned().map(Ok);
            Arc::new(write_run(&FileSystem::Os, &path(n), n, 0, 9, changes).unwrap().unwrap())
        };
        let old = run(1, &[change("a", 1, Some(None)), change("b", 1, Some(None))]);
        let new = run(
            2,
            &[change("a", 2, None), change("c", 2, Some(Some(5))), change("d", 2, Some(Some(50)))],
        );
        let all = |older: &[Arc<StateRun>], n| {
            let runs = [Arc::clone(&old), Arc::clone(&new)];
            let merged = merge(
                &FileSystem::Os,
                &runs,
                older,
                &path(n),
                n,
                Timestamp(10),
                &Abandon::default(),
            )
            .unwrap()
            .unwrap();
            assert_eq!(merged.info.level, 1);
            merged.iter_from(b"", None).unwrap().map(Result::unwrap).collect::<Vec<_>>()
        };
        let left = [change("b", 1, Some(None)), change("d", 2, Some(Some(50)))];
        assert_eq!(all(&[], 3), left);
        let hidden = run(5, &[change("a", 0, Some(None)), change("c", 0, Some(None))]);
        let hiding = [change("a", 2, None), left[0].clone(), change("c", 2, None), left[1].clone()];
        assert_eq!(all(std::slice::from_ref(&hidden), 4), hiding);
        let half_hidden = run(6, &[change("c", 0, Some(None))]);
        assert_eq!(all(&[half_hidden], 7), hiding[1..], "a hides nothing");
    }

    #[test]
    fn sets_damaged_runs_aside_and_merges_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = |n: usize| folder.path().join(format!("{n}.kv"));
        let runs: Vec<_> = (0..2 * RUNS_PER_LEVEL)
            .map(|n| {
                let changes = [Ok(change("a", 1, Some(None)))];
                let run =
                    write_run(&FileSystem::Os, &path(n), 1, 0, 1, changes.into_iter()).unwrap();
                Arc::new(run.unwrap())
            })
            .collect();
        let now = Timestamp(0);
        assert_eq!(due(&runs, now), Some(0..2 * RUNS_PER_LEVEL));
        let mut bytes = std::fs::read(path(3)).unwrap();
        bytes[40] ^= 1;
        std::fs::write(path(3), bytes).unwrap();
        assert!(
            merge(&FileSystem::Os, &runs, &[], &path(99), 99, now, &Abandon::default()).is_err()
        );
        mark_damaged(&runs).unwrap();
        assert_eq!(due(&runs, now), Some(4..2 * RUNS_PER_LEVEL), "the runs after the damaged one");
        assert!(runs.iter().enumerate().all(|(n, run)| run.is_damaged() == (n == 3)));
    }

    #[test]
    fn a_damaged_filter_of_an_older_run_ends_no_merge() {
        let folder = tempfile::tempdir().unwrap();
        let path = |n: u64| folder.path().join(format!("{n}.kv"));
        let run = |n: u64, changes: &[StateChange]| {
            let changes = changes.iter().cloned().map(Ok);
            Arc::new(write_run(&FileSystem::Os, &path(n), n, 0, 9, changes).unwrap().unwrap())
        };
        let older = run(1, &[change("a", 1, Some(None))]);
        let at = usize::try_from(older.info.filter).unwrap();
        let mut bytes = std::fs::read(path(1)).unwrap();
        bytes[at] ^= 1;
        std::fs::write(path(1), bytes).unwrap();
        let changes = [change("a", 2, None), change("b", 2, Some(None))];
        let (runs, now) = ([run(2, &changes)], Timestamp(0));
        let older = [older];
        let merged = merge(&FileSystem::Os, &runs, &older, &path(3), 3, now, &Abandon::default());
        let merged = merged.unwrap().unwrap();
        let left: Vec<_> = merged.iter_from(b"", None).unwrap().map(Result::unwrap).collect();
        assert_eq!(left, changes, "the delete may hide something");
    }

    #[test]
    fn a_half_expired_run_is_rewritten_once_on_its_level() {
        let folder = tempfile::tempdir().unwrap();
        let path = |n: u64| folder.path().join(format!("{n}.kv"));
        let write = |n: u64, level, changes: Vec<StateChange>| {
            let changes = changes.into_iter().map(Ok);
            Arc::new(write_run(&FileSystem::Os, &path(n), n, level, 99, changes).unwrap().unwrap())
        };
        let name = |n: u64| format!("k{n:02}");
        let old = write(1, 3, (0..40).map(|n| change(&name(n), 1, Some(None))).collect());
        // The first ten of these hide an entry of the older run.
        let new =
            (0..40).map(|n| change(&name(n + 30), 2, Some(Some(1_000 + n * 1_000)))).collect();
        let new = write(2, 1, new);
        let runs = [old, new];
        assert_eq!(due(&runs, Timestamp(20_000)), None);
        let now = Timestamp(21_000);
        assert_eq!(due(&runs, now), Some(1..2));
        let merged = Arc::new(
            merge(&FileSystem::Os, &runs[1..], &runs[..1], &path(3), 3, now, &Abandon::default())
                .unwrap()
                .unwrap(),
        );
        assert_eq!(merged.info.level, 1);
        let left: Vec<_> = merged.iter_from(b"", None).unwrap().map(Result::unwrap).collect();
        let hiding = left.iter().filter(|change| change.put.is_none()).count();
        assert!((10..15).contains(&hiding), "{hiding} deletes that may hide something");
        assert_eq!(left.len() - hiding, 19);
        assert_eq!(due(&[runs[0].clone(), merged], now), None, "not due again at once");
    }
}
