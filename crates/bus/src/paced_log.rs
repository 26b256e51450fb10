//! Log lines about what clients can cause as often as they like.
//!
//! There is one line per key and second, which says how many it stands for. However many keys a client makes
//! up, memory and the number of lines are bounded: keys beyond a maximum share one line.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::time::now;

/// How often a line of one key is written.
const INTERVAL: Duration = Duration::from_secs(1);

/// What a log line stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PacedLine<K, D> {
    /// This often, with the details of one of them.
    Repeated { key: K, details: D, count: u64 },
    /// This often, by keys that found no room.
    Others { count: u64 },
}

/// Decides which lines are written, and counts those that are not.
#[derive(Debug)]
pub struct LinePace<K, D> {
    recent: HashMap<K, Recent<D>>,
    max_keys: usize,
    /// Of keys that found no room.
    others: u64,
    /// When keys without recent lines were removed.
    swept: Option<Instant>,
}

#[derive(Debug)]
struct Recent<D> {
    written: Instant,
    /// What happened since then, with the details of the first.
    unwritten: u64,
    details: Option<D>,
}

impl<K: Clone + Eq + Hash, D> LinePace<K, D> {
    /// Returns a pace of at most `max_keys` lines per second, and one for all others.
    #[must_use]
    pub fn new(max_keys: usize) -> Self {
        Self { recent: HashMap::new(), max_keys, others: 0, swept: None }
    }

    /// Counts `count` occurrences. Returns the line that is due, if one is.
    pub fn record(
        &mut self,
        key: K,
        count: u64,
        now: Instant,
        details: impl FnOnce() -> D,
    ) -> Option<PacedLine<K, D>> {
        if let Some(recent) = self.recent.get_mut(&key) {
            recent.unwritten += count;
            let details = recent.details.take().unwrap_or_else(details);
            if !recent.is_over(now) {
                recent.details = Some(details);
                return None;
            }
            let count = std::mem::take(&mut recent.unwritten);
            recent.written = now;
            return Some(PacedLine::Repeated { key, details, count });
        }
        if self.recent.len() >= self.max_keys {
            self.sweep(now);
        }
        if self.recent.len() >= self.max_keys {
            self.others += count;
            return None;
        }
        self.recent.insert(key.clone(), Recent { written: now, unwritten: 0, details: None });
        Some(PacedLine::Repeated { key, details: details(), count })
    }

    /// Removes keys without recent lines. Not at every call: an attacker would make each of them expensive.
    fn sweep(&mut self, now: Instant) {
        let is_early = |swept: Instant| now.saturating_duration_since(swept) < INTERVAL / 10;
        if self.swept.is_some_and(is_early) {
            return;
        }
        self.swept = Some(now);
        self.recent.retain(|_, recent| !recent.is_over(now) || recent.unwritten > 0);
    }

    /// Returns the lines that are due although nothing new happens.
    pub fn overdue(&mut self, now: Instant) -> Vec<PacedLine<K, D>> {
        let mut lines = Vec::new();
        for (key, recent) in &mut self.recent {
            if let Some(details) = recent.details.take_if(|_| now >= recent.written + INTERVAL) {
                let count = std::mem::take(&mut recent.unwritten);
                recent.written = now;
                lines.push(PacedLine::Repeated { key: key.clone(), details, count });
            }
        }
        lines.extend(self.take_others());
        lines
    }

    /// Returns the line for the keys that found no room.
    pub fn take_others(&mut self) -> Option<PacedLine<K, D>> {
        let count = std::mem::take(&mut self.others);
        (count > 0).then_some(PacedLine::Others { count })
    }

    fn is_waiting(&self) -> bool {
        self.others > 0 || self.recent.values().any(|recent| recent.unwritten > 0)
    }
}

impl<D> Recent<D> {
    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.written) >= INTERVAL
    }
}

/// A log whose lines are paced. Nothing that is counted is left out: the last lines follow a second later.
pub struct PacedLog<K, D> {
    pace: Arc<Mutex<Flushed<K, D>>>,
    write: fn(PacedLine<K, D>),
}

struct Flushed<K, D> {
    pace: LinePace<K, D>,
    /// Whether a task is going to write what is overdue.
    by_task: bool,
}

impl<K, D> PacedLog<K, D>
where
    K: Clone + Eq + Hash + Send + 'static,
    D: Send + 'static,
{
    /// Returns a log whose lines `write` writes.
    #[must_use]
    pub fn new(max_keys: usize, write: fn(PacedLine<K, D>)) -> Self {
        let pace = Flushed { pace: LinePace::new(max_keys), by_task: false };
        Self { pace: Arc::new(Mutex::new(pace)), write }
    }

    /// Counts `count` occurrences for `key`, and writes the line that is due, if one is.
    pub fn record(&self, key: K, count: u64, details: impl FnOnce() -> D) {
        let mut pace = self.pace.lock();
        match pace.pace.record(key, count, now(), details) {
            Some(line) => {
                drop(pace);
                (self.write)(line);
            }
            None if pace.by_task => {}
            // Without a runtime, the next line has the rest.
            None => {
                if let Ok(runtime) = Handle::try_current() {
                    pace.by_task = true;
                    drop(pace);
                    runtime.spawn(write_overdue(Arc::clone(&self.pace), self.write));
                }
            }
        }
    }
}

/// Writes what is overdue, every second until nothing is.
async fn write_overdue<K, D>(pace: Arc<Mutex<Flushed<K, D>>>, write: fn(PacedLine<K, D>))
where
    K: Clone + Eq + Hash,
{
    loop {
        tokio::time::sleep(INTERVAL).await;
        let (lines, is_over) = {
            let mut flushed = pace.lock();
            let lines = flushed.pace.overdue(now());
            flushed.by_task = flushed.pace.is_waiting();
            (lines, !flushed.by_task)
        };
        lines.into_iter().for_each(write);
        if is_over {
            return;
        }
    }
}

impl<K, D> fmt::Debug for PacedLog<K, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacedLog").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Pace = LinePace<u32, u32>;

    fn repeated(key: u32, details: u32, count: u64) -> PacedLine<u32, u32> {
        PacedLine::Repeated { key, details, count }
    }

    #[test]
    fn there_is_one_line_per_key_and_second_with_a_count() {
        let (mut pace, start) = (Pace::new(10), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(pace.record(1, 5, at(0), || 50), Some(repeated(1, 50, 5)));
        assert_eq!(pace.record(1, 2, at(1), || 51), None);
        assert_eq!(pace.record(1, 1, at(999), || 52), None);
        assert_eq!(pace.record(2, 1, at(999), || 53), Some(repeated(2, 53, 1)));
        assert_eq!(pace.record(1, 1, at(1000), || 54), Some(repeated(1, 51, 4)));
        assert_eq!(pace.record(1, 7, at(1001), || 55), None);
        assert_eq!(pace.overdue(at(1999)), []);
        assert_eq!(pace.overdue(at(2000)), [repeated(1, 55, 7)]);
        assert!(!pace.is_waiting());
    }

    #[test]
    fn keys_beyond_the_maximum_share_a_line() {
        let (mut pace, start) = (Pace::new(3), Instant::now());
        let lines = (0..1000).filter_map(|key| pace.record(key, 1, start, || 0)).count();
        assert_eq!((lines, pace.recent.len()), (3, 3));
        assert_eq!(pace.take_others(), Some(PacedLine::Others { count: 997 }));
        let later = start + INTERVAL;
        assert_eq!(pace.record(5000, 1, later, || 0), Some(repeated(5000, 0, 1)));
        assert_eq!(pace.recent.len(), 1, "keys without recent lines make room");
    }

    proptest! {
        /// Whoever makes up keys: nothing is counted twice or left out, and lines and memory are bounded.
        #[test]
        fn every_occurrence_is_counted_once(
            steps in prop::collection::vec((0_u32..20, 1_u64..5, 0_u64..400), 0..300),
        ) {
            let (mut pace, start) = (Pace::new(4), Instant::now());
            let (mut elapsed, mut recorded, mut written, mut lines) = (0, 0, 0, 0);
            let count_of = |line: PacedLine<u32, u32>| match line {
                PacedLine::Repeated { count, .. } | PacedLine::Others { count } => count,
            };
            for (key, count, wait) in steps {
                elapsed += wait;
                let now = start + Duration::from_millis(elapsed);
                recorded += count;
                if let Some(line) = pace.record(key, count, now, || 0) {
                    (written, lines) = (written + count_of(line), lines + 1);
                }
                prop_assert!(pace.recent.len() <= 4);
            }
            prop_assert!(lines <= 4 * (elapsed / 1000 + 1), "{lines} lines in {elapsed} ms");
            let end = start + Duration::from_millis(elapsed) + INTERVAL;
            written += pace.overdue(end).into_iter().map(count_of).sum::<u64>();
            prop_assert_eq!(written, recorded);
            prop_assert!(!pace.is_waiting());
        }
    }
}
