//! UUIDv7 from the future neither hide duplicates nor make later ids slow to check.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use libtest_mimic::Trial;
use prombus_engine::{
    Batch, DiskEngine, DiskOptions, Durability, Engine, Position, ReadBudget, Retention,
};
use prombus_proto::{Clock, Event, EventId, Headers, ManualClock, Payload, Seq, Timestamp, Topic};
use tempfile::TempDir;

const NOW: Timestamp = Timestamp(1_700_000_000_000);
const YEAR: u64 = 365 * 24 * 60 * 60 * 1000;

pub(crate) fn trials() -> Vec<Trial> {
    type Test = fn(&mut Store);
    let tests: [(&str, Test, u64); 5] = [
        ("every_id_is_still_stored_once", every_id_is_stored_once, 1 << 20),
        ("every_id_is_still_stored_once_in_adopted_files", every_id_is_stored_once, 1),
        ("a_packed_topic_moves_to_its_own_file", a_packed_topic_moves_to_its_own_file, 1 << 20),
        ("later_ids_open_no_segment", later_ids_open_no_segment, 1 << 20),
        ("later_ids_open_no_adopted_file", later_ids_open_no_segment, 1),
    ];
    tests
        .into_iter()
        .map(|(name, test, min_adopted_extent_bytes)| {
            Trial::test(format!("disk::future_ids::{name}"), move || {
                test(&mut Store::new(min_adopted_extent_bytes));
                Ok(())
            })
        })
        .collect()
}

struct Store {
    runtime: tokio::runtime::Runtime,
    folder: TempDir,
    clock: ManualClock,
    min_adopted_extent_bytes: u64,
    /// With 0, the topic shares packs with others.
    small_files: usize,
    engine: Option<DiskEngine>,
}

impl Store {
    fn new(min_adopted_extent_bytes: u64) -> Self {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let mut store = Self {
            runtime: runtime.worker_threads(1).enable_all().build().unwrap(),
            folder: tempfile::tempdir().unwrap(),
            clock: ManualClock::at(NOW),
            min_adopted_extent_bytes,
            small_files: usize::MAX,
            engine: None,
        };
        store.open();
        store
    }

    fn open(&mut self) {
        let options = DiskOptions {
            clock: Arc::new(self.clock.clone()),
            wal_file_bytes: 16 << 10,
            segment_bytes: 24 << 10,
            min_adopted_extent_bytes: self.min_adopted_extent_bytes,
            small_files: self.small_files,
            packed_bytes: 64 << 10,
            ..DiskOptions::at(self.folder.path())
        };
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

    fn publish(&self, ids: &[EventId]) -> Vec<Position> {
        let events = ids.iter().map(|id| event(id).encode()).collect();
        let batch = Batch::of_events(events, Durability::Fsync);
        self.runtime.block_on(self.engine().commit(batch)).unwrap().positions
    }

    /// Publishes new ids one by one.
    fn publish_new(&self, ids: &[EventId]) {
        for id in ids {
            assert!(!self.publish(std::slice::from_ref(id))[0].duplicate, "{id}");
        }
    }

    /// Checks that `ids`, in this order, are all that the topic has.
    fn check(&self, ids: &[EventId]) {
        let (topic, budget) = (topic(), ReadBudget::of_events(usize::MAX));
        let page = self.runtime.block_on(self.engine().read(&topic, Seq::FIRST, budget)).unwrap();
        let found: Vec<_> = page.events.into_iter().map(|event| event.id).collect();
        assert!(found == ids, "{} events instead of {}", found.len(), ids.len());
        for (seq, id) in (1..).map(Seq).zip(ids) {
            let found = self.runtime.block_on(self.engine().seek_id(&topic, id)).unwrap();
            assert_eq!(found, Some(seq), "{id}");
            let expected = Position { seq, duplicate: true };
            assert_eq!(self.publish(std::slice::from_ref(id)), [expected], "{id}");
        }
    }

    fn segments(&self) -> Vec<PathBuf> {
        let folder = self.folder.path().join("topics").join(topic().as_str());
        fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect()
    }
}

fn topic() -> Topic {
    Topic::new("future").unwrap()
}

/// UUIDv7, one per second after `from`.
fn ids_from(from: Timestamp, seconds: Range<u64>) -> Vec<EventId> {
    let id = |second: u64| {
        let millis = from.0 + second * 1000;
        EventId::new(&format!(
            "{:08x}-{:04x}-7000-8000-{second:012x}",
            millis >> 16,
            millis & 0xFFFF
        ))
        .unwrap()
    };
    seconds.map(id).collect()
}

fn event(id: &EventId) -> Event {
    Event {
        id: id.clone(),
        ts: NOW,
        topic: topic(),
        key: None,
        headers: Headers::default(),
        payload: Payload::parse(Bytes::from(format!("\"{}\"", "x".repeat(200)))).unwrap(),
        caused_by: vec![],
        tags: vec![],
        sid: None,
    }
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

/// A packed segment spans minutes, so that an id in it that was ahead of the clock is behind later ones.
fn a_packed_topic_moves_to_its_own_file(store: &mut Store) {
    store.small_files = 0;
    store.restart();
    let mut all = ids_from(NOW, 120..121);
    store.publish_new(&all);
    let normal = ids_from(NOW, 0..30);
    assert!(store.publish(&normal).iter().all(|position| !position.duplicate));
    all.extend(normal);
    store.clock.advance_ms(130_000);
    let later = ids_from(NOW, 130..132);
    store.publish_new(&later[..1]);
    store.restart();
    store.small_files = usize::MAX;
    store.restart();
    store.publish_new(&later[1..]);
    store.restart();
    assert!(!store.segments().is_empty());
    all.extend(later);
    store.check(&all);
}

/// Ids that are minutes and hours ahead, between normal ones, until the clock has passed them.
fn every_id_is_stored_once(store: &mut Store) {
    let (normal, ahead) = (ids_from(NOW, 0..1200), ids_from(NOW, 5600..5620));
    let mut all = Vec::new();
    for second in 0..20 {
        let ids = [normal[second].clone(), ahead[second].clone(), normal[1100 + second].clone()];
        let ids = if second < 18 { &ids[..2] } else { &ids[..] };
        store.publish_new(ids);
        all.extend_from_slice(ids);
        store.clock.advance_ms(1000);
    }
    store.check(&all);
    store.crash();
    store.check(&all);
    for _ in 0..3 {
        store.restart();
        store.check(&all);
    }
    // The ids that were ahead are not any more, and newer than all others.
    store.clock.set(NOW.plus_ms(5_610_000));
    store.check(&all);
    let later = ids_from(NOW, 5600..5900);
    for (index, id) in later.iter().enumerate() {
        let is_known = ahead.contains(id);
        assert_eq!(store.publish(std::slice::from_ref(id))[0].duplicate, is_known, "{index}");
        if !is_known {
            all.push(id.clone());
        }
    }
    store.check(&all);
    store.restart();
    store.check(&all);
}

fn later_ids_open_no_segment(store: &mut Store) {
    // The clock was ahead, so these ids became the newest.
    store.clock.advance_ms(YEAR);
    store.publish_new(&ids_from(store.clock.now(), 0..600));
    store.clock.set(NOW);
    store.restart();
    let before = store.segments().len();
    let bytes = store.runtime.block_on(store.engine().bounds(&topic())).unwrap().bytes;
    let rule = Retention { max_bytes: Some(bytes / 2), ..Retention::default() };
    store.runtime.block_on(store.engine().retain(&topic(), &rule)).unwrap();
    store.restart();
    let segments = store.segments();
    assert!(!segments.is_empty() && segments.len() < before);
    // Whoever opens one of them reports its header.
    segments.iter().for_each(|path| damage_header(path));
    let ids = ids_from(NOW, 0..20);
    store.publish_new(&ids);
    let incidents = store.engine().health().incidents;
    assert!(incidents.is_empty(), "{incidents:?}");
    assert!(store.publish(&ids).iter().all(|position| position.duplicate));
}

fn damage_header(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    bytes[9] ^= 1;
    fs::write(path, bytes).unwrap();
}
