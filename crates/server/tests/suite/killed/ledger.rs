//! What the clients saw, and what must hold.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::{sleep, timeout};

#[derive(Default)]
pub(crate) struct Ledger(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    /// Sent, answered or not.
    sent: BTreeSet<String>,
    stored: BTreeMap<String, u64>,
    /// The attempt that was acknowledged.
    acked: BTreeMap<String, u64>,
    /// The attempts of each event, and how many kills preceded each.
    attempts: BTreeMap<String, BTreeMap<u64, u64>>,
    kills: u64,
    observed: BTreeSet<u64>,
}

pub(crate) const MAX_ATTEMPTS: u64 = 6;

/// Returns `true` for events that every consumer rejects.
pub(crate) fn is_doomed(id: &str) -> bool {
    id.trim_start_matches(|c: char| !c.is_ascii_digit())
        .replace('-', "")
        .parse::<u64>()
        .is_ok_and(|number| number % 37 == 5)
}

impl Ledger {
    pub(crate) fn sent(&self, id: &str) {
        self.0.lock().unwrap().sent.insert(id.to_owned());
    }

    pub(crate) fn stored(&self, id: &str, seq: u64) {
        let before = self.0.lock().unwrap().stored.insert(id.to_owned(), seq);
        assert!(before.is_none_or(|before| before == seq), "{id} is at {before:?} and at {seq}");
    }

    pub(crate) fn unanswered(&self) -> Vec<String> {
        let seen = self.0.lock().unwrap();
        seen.sent.iter().filter(|id| !seen.stored.contains_key(*id)).cloned().collect()
    }

    pub(crate) fn delivered(&self, id: &str, seq: u64, attempt: u64) {
        let mut seen = self.0.lock().unwrap();
        assert!(seen.sent.contains(id), "{id} was never sent");
        if let Some(stored) = seen.stored.get(id) {
            assert_eq!(*stored, seq, "{id} has moved");
        }
        // Consumers run concurrently: an expired attempt may be seen late.
        if let Some(acked) = seen.acked.get(id) {
            assert!(attempt < *acked, "{id}: attempt {attempt} although {acked} was acknowledged");
        }
        let kills = seen.kills;
        let attempts = seen.attempts.entry(id.to_owned()).or_default();
        // Only a kill may lose the record of a delivery.
        if let Some(before) = attempts.insert(attempt, kills) {
            assert!(before < kills, "{id}: attempt {attempt} came twice");
        }
        let most_before =
            attempts.iter().filter(|(_, when)| **when < kills).map(|(most, _)| *most).max();
        assert!(
            most_before.is_none_or(|most| attempt >= most),
            "{id}: {attempt} after {most_before:?}"
        );
    }

    pub(crate) fn acked(&self, id: &str, attempt: u64) {
        let before = self.0.lock().unwrap().acked.insert(id.to_owned(), attempt);
        assert_eq!(before, None, "{id} was acknowledged twice");
    }

    pub(crate) fn observed(&self, seq: u64) {
        self.0.lock().unwrap().observed.insert(seq);
    }

    pub(crate) fn has_observed(&self, seq: u64) -> bool {
        self.0.lock().unwrap().observed.contains(&seq)
    }

    pub(crate) fn last_stored(&self) -> u64 {
        self.0.lock().unwrap().stored.values().copied().max().unwrap_or(0)
    }

    /// Waits for the first delivery since the last kill.
    pub(crate) async fn delivers(&self) {
        let first = async {
            while !self.has_delivered() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(30), first).await.expect("the group is delivered");
    }

    fn has_delivered(&self) -> bool {
        let seen = self.0.lock().unwrap();
        seen.attempts.values().flat_map(BTreeMap::values).any(|when| *when == seen.kills)
    }

    pub(crate) fn killed(&self) {
        self.0.lock().unwrap().kills += 1;
    }

    pub(crate) fn doomed_events(&self) -> usize {
        let seen = self.0.lock().unwrap();
        seen.sent.iter().filter(|id| is_doomed(id)).count()
    }

    pub(crate) fn check_end(&self, dead: &[String]) {
        let seen = self.0.lock().unwrap();
        let dead_once: BTreeSet<_> = dead.iter().cloned().collect();
        assert_eq!(dead_once.len(), dead.len(), "a dead letter came twice");
        for id in &seen.sent {
            assert!(seen.stored.contains_key(id), "{id} was never stored");
            assert!(
                !is_doomed(id) || dead_once.contains(id),
                "{id} is none of {} dead letters",
                dead.len()
            );
        }
        let both: Vec<_> = seen.acked.keys().filter(|id| dead_once.contains(*id)).collect();
        assert!(both.is_empty(), "acknowledged and dead: {both:?}");
        let seqs: BTreeSet<_> = seen.stored.values().copied().collect();
        assert_eq!(seqs, (1..=seen.stored.len() as u64).collect(), "no gap and no duplicate");
        assert_eq!(seen.observed, seqs, "the observer saw everything");
        assert!(
            seen.kills > 0 && !seen.acked.is_empty() && !dead.is_empty(),
            "the run covered everything"
        );
    }
}
