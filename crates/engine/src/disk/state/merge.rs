//! Several sorted files become one; of each key the newest change stays.

use std::io;
use std::iter::Peekable;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use prombus_proto::Timestamp;

use super::run::{StateRun, write_run};
use crate::StateKey;
use crate::disk::wal::frame::StateChange;

/// How many files of one level make one of the next.
pub(crate) const RUNS_PER_LEVEL: usize = 8;

/// The files to merge now, if any: they lie side by side, so that newer stays before older. One
/// alone is written again without what has expired in it.
pub(crate) fn due(runs: &[Arc<StateRun>], now: Timestamp) -> Option<Range<usize>> {
    let is_over =
        |run: &StateRun, by: Option<Timestamp>| by.is_some_and(|at| at <= now) && !run.is_damaged();
    if runs.first().is_some_and(|oldest| is_over(oldest, oldest.info.all_expire_by)) {
        return Some(0..1);
    }
    if let Some(place) = runs.iter().position(|run| is_over(run, run.info.half_expire_by)) {
        return Some(place..place + 1);
    }
    // One that is damaged stays as it is, and nothing is merged across it.
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

/// Notes which of `runs`, that could not be merged, are damaged: they are not tried again. Where all of
/// them can be read, what they might hide cannot, which is the same for them.
pub(crate) fn set_damaged_aside(runs: &[Arc<StateRun>]) {
    let are_all_readable = runs.iter().all(|run| run.is_readable());
    runs.iter()
        .filter(|run| are_all_readable || !run.is_readable())
        .for_each(|run| run.set_damaged());
}

/// Writes the newest change of each key of `runs`, which come oldest first, into one file; no file
/// where nothing is left. What is deleted or has expired goes, except where one of the `older` files
/// may have something that it hides.
pub(crate) fn merge(
    runs: &[Arc<StateRun>],
    older: &[Arc<StateRun>],
    path: &Path,
    number: u64,
    now: Timestamp,
) -> io::Result<Option<StateRun>> {
    let highest = runs.iter().map(|run| run.info.level).max().unwrap_or(0);
    let level = if runs.len() > 1 { highest + 1 } else { highest };
    let at_most = runs.iter().map(|run| run.info.entries).sum();
    let damaged = |detail| io::Error::new(io::ErrorKind::InvalidData, detail);
    let sources = runs
        .iter()
        .rev()
        .map(|run| run.iter_from(b"", None).map(Iterator::peekable))
        .collect::<Result<Vec<_>, _>>()
        .map_err(damaged)?;
    let changes = NewestOfEach { newest_first: sources }.filter_map(|change| {
        change.and_then(|change| what_is_left(change, older, now)).transpose()
    });
    write_run(path, number, level, at_most, changes)
}

fn what_is_left(
    mut change: StateChange,
    older: &[Arc<StateRun>],
    now: Timestamp,
) -> Result<Option<StateChange>, String> {
    if change.entry().is_some_and(|entry| entry.has_expired(now)) {
        change.put = None;
    }
    if change.put.is_some() {
        return Ok(Some(change));
    }
    for run in older {
        if run.may_have(&change.key)? {
            return Ok(Some(change));
        }
    }
    Ok(None)
}

struct NewestOfEach<I: Iterator<Item = Result<StateChange, String>>> {
    newest_first: Vec<Peekable<I>>,
}

impl<I: Iterator<Item = Result<StateChange, String>>> Iterator for NewestOfEach<I> {
    type Item = Result<StateChange, String>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut smallest: Option<StateKey> = None;
        for source in &mut self.newest_first {
            match source.peek() {
                Some(Ok(change)) if smallest.as_ref().is_none_or(|key| change.key < *key) => {
                    smallest = Some(change.key.clone());
                }
                Some(Err(_)) => return source.next(),
                Some(Ok(_)) | None => {}
            }
        }
        let smallest = smallest?;
        let mut newest = None;
        for source in &mut self.newest_first {
            let same =
                source.next_if(|change| change.as_ref().is_ok_and(|change| change.key == smallest));
            newest = newest.or(same);
        }
        newest
    }
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
    fn newer_wins_and_what_hides_nothing_goes() {
        let folder = tempfile::tempdir().unwrap();
        let path = |n: u64| folder.path().join(format!("{n}.kv"));
        let run = |n: u64, changes: &[StateChange]| {
            let changes = changes.iter().cloned().map(Ok);
            Arc::new(write_run(&path(n), n, 0, 9, changes).unwrap().unwrap())
        };
        let old = run(1, &[change("a", 1, Some(None)), change("b", 1, Some(None))]);
        let new = run(
            2,
            &[change("a", 2, None), change("c", 2, Some(Some(5))), change("d", 2, Some(Some(50)))],
        );
        let all = |older: &[Arc<StateRun>], n| {
            let runs = [Arc::clone(&old), Arc::clone(&new)];
            let merged = merge(&runs, older, &path(n), n, Timestamp(10)).unwrap().unwrap();
            assert_eq!(merged.info.level, 1);
            merged.iter_from(b"", None).unwrap().map(Result::unwrap).collect::<Vec<_>>()
        };
        let kept = [change("b", 1, Some(None)), change("d", 2, Some(Some(50)))];
        assert_eq!(all(&[], 3), kept);
        let hidden = run(5, &[change("a", 0, Some(None)), change("c", 0, Some(None))]);
        let hiding = [change("a", 2, None), kept[0].clone(), change("c", 2, None), kept[1].clone()];
        assert_eq!(all(std::slice::from_ref(&hidden), 4), hiding);
        let half_hidden = run(6, &[change("c", 0, Some(None))]);
        assert_eq!(all(&[half_hidden], 7), hiding[1..], "a hides nothing");
    }

    #[test]
    fn what_is_damaged_is_set_aside_and_the_others_are_merged() {
        let folder = tempfile::tempdir().unwrap();
        let path = |n: usize| folder.path().join(format!("{n}.kv"));
        let runs: Vec<_> = (0..2 * RUNS_PER_LEVEL)
            .map(|n| {
                let changes = [Ok(change("a", 1, Some(None)))];
                let run = write_run(&path(n), 1, 0, 1, changes.into_iter()).unwrap();
                Arc::new(run.unwrap())
            })
            .collect();
        let now = Timestamp(0);
        assert_eq!(due(&runs, now), Some(0..2 * RUNS_PER_LEVEL));
        let mut bytes = std::fs::read(path(3)).unwrap();
        bytes[40] ^= 1;
        std::fs::write(path(3), bytes).unwrap();
        assert!(merge(&runs, &[], &path(99), 99, now).is_err());
        set_damaged_aside(&runs);
        assert_eq!(due(&runs, now), Some(4..2 * RUNS_PER_LEVEL), "what is behind the damaged one");
        assert!(runs.iter().enumerate().all(|(n, run)| run.is_damaged() == (n == 3)));
    }

    #[test]
    fn half_expired_is_due_once_and_keeps_its_level() {
        let folder = tempfile::tempdir().unwrap();
        let path = |n: u64| folder.path().join(format!("{n}.kv"));
        let write = |n: u64, level, changes: Vec<StateChange>| {
            let changes = changes.into_iter().map(Ok);
            Arc::new(write_run(&path(n), n, level, 99, changes).unwrap().unwrap())
        };
        let name = |n: u64| format!("k{n:02}");
        let old = write(1, 3, (0..40).map(|n| change(&name(n), 1, Some(None))).collect());
        // The first ten are hidden by what expires.
        let new =
            (0..40).map(|n| change(&name(n + 30), 2, Some(Some(1_000 + n * 1_000)))).collect();
        let new = write(2, 1, new);
        let runs = [old, new];
        assert_eq!(due(&runs, Timestamp(20_000)), None);
        let now = Timestamp(21_000);
        assert_eq!(due(&runs, now), Some(1..2));
        let merged = Arc::new(merge(&runs[1..], &runs[..1], &path(3), 3, now).unwrap().unwrap());
        assert_eq!(merged.info.level, 1);
        let left: Vec<_> = merged.iter_from(b"", None).unwrap().map(Result::unwrap).collect();
        let hiding = left.iter().filter(|change| change.put.is_none()).count();
        assert!((10..15).contains(&hiding), "{hiding} that may hide something");
        assert_eq!(left.len() - hiding, 19);
        assert_eq!(due(&[runs[0].clone(), merged], now), None, "not again at once");
    }
}
