//! Retention by age counts from when an event was stored, whatever its `ts` says.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use libtest_mimic::Trial;
use prombus_engine::{Batch, DiskEngine, DiskOptions, Durability, Engine, Retention};
use prombus_proto::{Clock, Event, EventId, Headers, ManualClock, Payload, Seq, Timestamp, Topic};
use tempfile::TempDir;

const NOW: Timestamp = Timestamp(1_700_000_000_000);
const HOUR: u64 = 60 * 60 * 1000;
const YEAR: u64 = 365 * 24 * HOUR;

pub(crate) fn trials() -> Vec<Trial> {
    type Test = fn(&mut Store);
    let tests: [(&str, Test); 9] = [
        ("an_event_from_1970_is_kept_in_the_wal", |store| from_1970(store, Where::Wal)),
        ("an_event_from_1970_is_kept_after_a_crash", |store| from_1970(store, Where::ReplayedWal)),
        ("an_event_from_1970_is_kept_in_a_segment", |store| from_1970(store, Where::Segment)),
        ("an_event_from_the_future_keeps_no_others", an_event_from_the_future),
        ("a_clock_that_is_set_back_drops_nothing_early", a_clock_set_back),
        ("events_stored_while_the_clock_was_ahead_age_with_the_next", a_clock_that_was_ahead),
        ("only_an_age_limit_divides_segments_by_age", only_an_age_limit_divides_segments),
        ("the_last_events_age_although_the_clock_was_ahead", a_clock_that_was_ahead_at_last),
        ("the_time_is_exact_in_the_wal_and_bounded_in_segments", exact_in_the_wal),
    ];
    tests
        .into_iter()
        .map(|(name, test)| {
            Trial::test(format!("disk::arrival::{name}"), move || {
                test(&mut Store::new());
                Ok(())
            })
        })
        .collect()
}

#[derive(Clone, Copy, PartialEq)]
enum Where {
    Wal,
    ReplayedWal,
    Segment,
}

struct Store {
    runtime: tokio::runtime::Runtime,
    folder: TempDir,
    clock: ManualClock,
    segment_bytes: u64,
    engine: Option<DiskEngine>,
    published: u64,
}

impl Store {
    fn new() -> Self {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let mut store = Self {
            runtime: runtime.worker_threads(1).enable_all().build().unwrap(),
            folder: tempfile::tempdir().unwrap(),
            clock: ManualClock::at(NOW),
            // So that one event fills a segment.
            segment_bytes: 64,
            engine: None,
            published: 0,
        };
        store.open();
        store
    }

    fn open(&mut self) {
        let clock = Arc::new(self.clock.clone());
        let segment_bytes = self.segment_bytes;
        let options = DiskOptions { clock, segment_bytes, ..DiskOptions::at(self.folder.path()) };
        self.engine = Some(DiskEngine::open(&options).unwrap());
    }

    fn engine(&self) -> &DiskEngine {
        self.engine.as_ref().unwrap()
    }

    /// Closes the store, which writes everything into segments, and opens it again.
    fn restart(&mut self) {
        self.runtime.block_on(self.engine().close()).unwrap();
        self.open();
    }

    /// Opens a copy of the store as it is now.
    fn crash(&mut self) {
        let copy = tempfile::tempdir().unwrap();
        copy_folder(self.folder.path(), copy.path());
        self.engine = None;
        self.folder = copy;
        self.open();
    }

    fn move_to(&mut self, place: Where) {
        match place {
            Where::Wal => {}
            Where::ReplayedWal => self.crash(),
            Where::Segment => self.restart(),
        }
    }

    fn publish(&mut self, ts: Timestamp) {
        self.published += 1;
        let event = Event {
            id: EventId::new(&format!("event-{}", self.published)).unwrap(),
            ts,
            topic: topic(),
            key: None,
            headers: Headers::default(),
            payload: Payload::parse(Bytes::from_static(b"1")).unwrap(),
            caused_by: vec![],
            tags: vec![],
            sid: None,
        };
        let batch = Batch::of_events(vec![event.encode()], Durability::Fsync);
        self.runtime.block_on(self.engine().commit(batch)).unwrap();
    }

    /// Retains the events of the last hour and returns the first of them.
    fn first_retained(&self) -> Seq {
        let rule = Retention { max_age_ms: Some(HOUR), ..Retention::default() };
        self.runtime.block_on(self.engine().retain(&topic(), &rule)).unwrap().first
    }
}

fn topic() -> Topic {
    Topic::new("arrival").unwrap()
}

fn copy_folder(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            fs::create_dir_all(&target).unwrap();
            copy_folder(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}

fn from_1970(store: &mut Store, place: Where) {
    store.publish(Timestamp(0));
    store.clock.advance_ms(HOUR);
    store.move_to(place);
    assert_eq!(store.first_retained(), Seq(1));
    store.clock.advance_ms(1);
    assert_eq!(store.first_retained(), Seq(2));
}

fn an_event_from_the_future(store: &mut Store) {
    for place in [Where::Wal, Where::ReplayedWal, Where::Segment] {
        let first = store.published + 1;
        let far_ahead = store.clock.now().plus_ms(100 * YEAR);
        for ts in [store.clock.now(), far_ahead, store.clock.now()] {
            store.publish(ts);
        }
        store.move_to(place);
        store.clock.advance_ms(HOUR);
        assert_eq!(store.first_retained(), Seq(first));
        store.publish(store.clock.now());
        store.clock.advance_ms(1);
        assert_eq!(store.first_retained(), Seq(first + 3));
    }
}

fn a_clock_set_back(store: &mut Store) {
    for place in [Where::Wal, Where::ReplayedWal, Where::Segment] {
        let first = store.published + 1;
        store.publish(NOW);
        store.clock.advance_ms(1);
        let before = store.clock.now();
        store.clock.set(Timestamp(0));
        store.publish(NOW);
        assert_eq!(store.first_retained(), Seq(first));
        store.move_to(place);
        assert_eq!(store.first_retained(), Seq(first));
        store.clock.set(before.plus_ms(HOUR));
        store.publish(NOW);
        // The second event was stored at any time up to now.
        assert_eq!(store.first_retained(), Seq(first + 1));
        store.clock.advance_ms(HOUR);
        assert_eq!(store.first_retained(), Seq(first + 1));
        store.clock.advance_ms(1);
        assert_eq!(store.first_retained(), Seq(first + 3));
    }
}

/// The clock is ahead when `count` events are stored, and then right again.
fn publish_with_a_clock_ahead(store: &mut Store, count: u64, place: Where) -> u64 {
    let first = store.published + 1;
    let before = store.clock.now();
    store.clock.advance_ms(100 * YEAR);
    (0..count).for_each(|_| store.publish(NOW));
    store.clock.set(before);
    store.move_to(place);
    first
}

fn a_clock_that_was_ahead(store: &mut Store) {
    for place in [Where::Wal, Where::ReplayedWal, Where::Segment] {
        let first = publish_with_a_clock_ahead(store, 3, place);
        store.publish(NOW);
        store.clock.advance_ms(HOUR);
        assert_eq!(store.first_retained(), Seq(first));
        store.publish(NOW);
        store.clock.advance_ms(1);
        assert_eq!(store.first_retained(), Seq(first + 4));
    }
}

fn a_clock_that_was_ahead_at_last(store: &mut Store) {
    for place in [Where::Wal, Where::ReplayedWal, Where::Segment] {
        let first = publish_with_a_clock_ahead(store, 3, place);
        assert_eq!(store.first_retained(), Seq(first));
        store.clock.advance_ms(HOUR);
        assert_eq!(store.first_retained(), Seq(first));
        store.clock.advance_ms(1);
        assert_eq!(store.first_retained(), Seq(first + 3));
    }
}

fn exact_in_the_wal(store: &mut Store) {
    let arrival = |store: &Store, seq| {
        store.runtime.block_on(store.engine().arrival(&topic(), Seq(seq))).unwrap().unwrap()
    };
    let mut times = Vec::new();
    for place in [Where::Wal, Where::ReplayedWal] {
        for _ in 0..3 {
            times.push(store.clock.now());
            store.publish(Timestamp(0));
            store.clock.advance_ms(HOUR);
        }
        store.move_to(place);
        for (seq, time) in (1..).zip(&times) {
            assert_eq!(arrival(store, seq).exact(), Some(*time), "{seq}");
        }
    }
    // Each event has a segment, and was stored after the one before.
    store.move_to(Where::Segment);
    for (index, time) in times.iter().enumerate() {
        let found = arrival(store, index as u64 + 1);
        assert_eq!(found.latest(), *time);
        let earliest = index.checked_sub(1).map_or(Timestamp(0), |before| times[before]);
        assert_eq!(found.closest_to(Timestamp(0)), earliest);
    }
    // What was trimmed is a bound as well.
    store.runtime.block_on(store.engine().trim(&topic(), Seq(3))).unwrap();
    assert_eq!(arrival(store, 3).closest_to(Timestamp(0)), times[1]);
}

fn only_an_age_limit_divides_segments(store: &mut Store) {
    store.segment_bytes = 1 << 20;
    store.restart();
    let segments = |store: &Store| {
        let files = fs::read_dir(store.folder.path().join("topics/arrival")).unwrap();
        let is_segment = |path: &Path| path.extension().is_some_and(|found| found == "seg");
        files.filter(|file| is_segment(&file.as_ref().unwrap().path())).count()
    };
    let rule = |max_age_ms| Retention { max_age_ms, ..Retention::default() };
    for (max_age_ms, expected) in [(None, 1), (Some(100 * YEAR), 4), (None, 4)] {
        for _ in 0..3 {
            store.clock.advance_ms(25 * HOUR);
            store.publish(NOW);
            store.runtime.block_on(store.engine().retain(&topic(), &rule(max_age_ms))).unwrap();
            store.restart();
        }
        assert_eq!(segments(store), expected, "{max_age_ms:?}");
    }
}
