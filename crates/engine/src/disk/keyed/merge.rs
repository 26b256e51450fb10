//! Several sorted files become one; of each key the newest change stays.

use std::io;
use std::iter::Peekable;
use std::path::Path;
use std::sync::Arc;

use prombus_proto::Timestamp;

use super::run::{StateRun, write_run};
use crate::StateKey;
use crate::disk::frame::StateChange;

/// How many files of one level make one of the next.
pub(in crate::disk) const RUNS_PER_LEVEL: usize = 8;

/// The files to merge now, if any: they lie side by side, so that newer stays before older.
pub(in crate::disk) fn due(runs: &[Arc<StateRun>]) -> Option<std::ops::Range<usize>> {
    let mut start = 0;
    for end in 1..=runs.len() {
        if end == runs.len() || runs[end].info.level != runs[start].info.level {
            if end - start >= RUNS_PER_LEVEL {
                return Some(start..end);
            }
            start = end;
        }
    }
    None
}

/// Writes the newest change of each key of `runs`, which come oldest first, into one file of the
/// next level; no file where nothing is left. `nothing_older` says that no file holds older
/// changes: what is deleted or has expired hides nothing then and goes.
pub(in crate::disk) fn merge(
    runs: &[Arc<StateRun>],
    path: &Path,
    number: u64,
    nothing_older: bool,
    now: Timestamp,
) -> io::Result<Option<StateRun>> {
    let level = runs.iter().map(|run| run.info.level).max().unwrap_or(0) + 1;
    let at_most = runs.iter().map(|run| run.info.entries).sum();
    let damaged = |detail| io::Error::new(io::ErrorKind::InvalidData, detail);
    let sources = runs
        .iter()
        .rev()
        .map(|run| run.iter_from(b"", None).map(Iterator::peekable))
        .collect::<Result<Vec<_>, _>>()
        .map_err(damaged)?;
    let changes = NewestOfEach { newest_first: sources }.filter_map(|change| match change {
        Ok(mut change) => {
            if change.entry().is_some_and(|entry| entry.has_expired(now)) {
                change.put = None;
            }
            (change.put.is_some() || !nothing_older).then_some(Ok(change))
        }
        error @ Err(_) => Some(error),
    });
    write_run(path, number, level, at_most, changes)
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
        let all = |nothing_older, n| {
            let runs = [Arc::clone(&old), Arc::clone(&new)];
            let merged = merge(&runs, &path(n), n, nothing_older, Timestamp(10)).unwrap().unwrap();
            merged.iter_from(b"", None).unwrap().map(Result::unwrap).collect::<Vec<_>>()
        };
        let kept = [change("b", 1, Some(None)), change("d", 2, Some(Some(50)))];
        assert_eq!(all(true, 3), kept);
        let hiding = [change("a", 2, None), kept[0].clone(), change("c", 2, None), kept[1].clone()];
        assert_eq!(all(false, 4), hiding);
    }
}
