//! Many small topics share packs: few files, few segments per topic, no space held by what is gone.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libtest_mimic::Trial;
use prombus_engine::{
    Batch, Condition, DiskEngine, DiskOptions, Durability, Engine, ReadBudget, Retention,
};
use prombus_proto::{ManualClock, Seq, Timestamp, Topic};
use tempfile::TempDir;

use crate::damage_store::{Kind, event, files_of, temporary_folder, topic};

const NOW: Timestamp = Timestamp(1_700_000_000_000);
const DAY: u64 = 24 * 60 * 60 * 1000;
const TOPICS: u64 = 100;

pub(crate) fn trials() -> Vec<Trial> {
    type Test = fn(&mut Store);
    let tests: [(&str, Test); 8] = [
        ("many_small_topics_share_one_file", many_small_topics_share_one_file),
        ("few_small_topics_have_their_own_files", few_small_topics_have_their_own_files),
        ("a_topic_keeps_few_segments", a_topic_keeps_few_segments),
        ("a_topic_that_grows_gets_a_file", a_topic_that_grows_gets_a_file),
        ("a_pack_without_events_is_removed", a_pack_without_events_is_removed),
        ("a_pack_that_is_mostly_unused_is_emptied", a_pack_that_is_mostly_unused_is_emptied),
        ("retention_by_age_reaches_packed_events", retention_by_age_reaches_packed_events),
        ("a_checkpoint_writes_what_changed", a_checkpoint_writes_what_changed),
    ];
    let trial = |(name, test): (&str, Test)| {
        Trial::test(format!("disk::packs::{name}"), move || {
            test(&mut Store::new());
            Ok(())
        })
    };
    tests.into_iter().map(trial).collect()
}

struct Store {
    runtime: tokio::runtime::Runtime,
    folder: TempDir,
    clock: ManualClock,
    engine: Option<DiskEngine>,
    /// How many rounds of events were published.
    rounds: u64,
}

impl Store {
    fn new() -> Self {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let mut store = Self {
            runtime: runtime.worker_threads(1).enable_all().build().unwrap(),
            folder: temporary_folder(),
            clock: ManualClock::at(NOW),
            engine: None,
            rounds: 0,
        };
        store.open();
        store
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn open(&mut self) {
        let options = DiskOptions {
            clock: Arc::new(self.clock.clone()),
            packed_bytes: 8 << 10,
            ..DiskOptions::at(self.folder.path())
        };
        let engine = DiskEngine::open(&options).unwrap();
        let health = engine.health();
        assert_eq!((health.condition, health.incidents), (Condition::Healthy, vec![]));
        self.engine = Some(engine);
    }

    fn engine(&self) -> &DiskEngine {
        self.engine.as_ref().unwrap()
    }

    /// Closes the engine, which checkpoints everything, and opens it again.
    fn checkpoint(&mut self) {
        let engine = self.engine.take().unwrap();
        self.runtime.block_on(engine.close()).unwrap();
        drop(engine);
        self.open();
    }

    /// Publishes one event to each of the first `topics` topics, and checkpoints them.
    fn publish_round(&mut self, topics: u64) {
        let round = self.rounds;
        let events = (0..topics).map(|number| event(&name(number), round, 100)).collect();
        self.rounds += 1;
        self.commit(events);
        self.checkpoint();
    }

    fn commit(&self, events: Vec<prombus_proto::EncodedEvent>) {
        let batch = Batch::of_events(events, Durability::Fsync);
        self.runtime.block_on(self.engine().commit(batch)).unwrap();
    }

    fn trim(&self, number: u64, below: u64) {
        let topic = topic(&name(number));
        self.runtime.block_on(self.engine().trim(&topic, Seq(below))).unwrap();
    }

    fn read(&self, topic: &Topic) -> Vec<Seq> {
        let all = ReadBudget::of_events(100_000);
        let page = self.runtime.block_on(self.engine().read(topic, Seq::FIRST, all)).unwrap();
        page.events.iter().map(|event| event.seq).collect()
    }

    /// Checks that topic `number` has exactly the events `first` to `last`, by position and by id.
    fn check(&self, number: u64, first: u64, last: u64) {
        let topic = topic(&name(number));
        assert_eq!(self.read(&topic), (first..=last).map(Seq).collect::<Vec<_>>(), "{topic}");
        for seq in first..=last {
            let id = event(&name(number), seq - 1, 100).id().clone();
            let found = self.runtime.block_on(self.engine().seek_id(&topic, &id)).unwrap();
            assert_eq!(found, Some(Seq(seq)), "{topic}");
            let at = self.runtime.block_on(self.engine().seek_time(&topic, NOW.plus_ms(seq - 1)));
            assert_eq!(at.unwrap(), Seq(seq), "{topic}");
        }
    }

    fn files(&self, kind: Kind) -> Vec<PathBuf> {
        files_of(self.path(), kind)
    }

    fn bytes(&self, kind: Kind) -> u64 {
        self.files(kind).iter().map(|file| fs::metadata(file).unwrap().len()).sum()
    }
}

fn name(number: u64) -> String {
    format!("topic.{number:03}")
}

fn many_small_topics_share_one_file(store: &mut Store) {
    store.publish_round(TOPICS);
    assert_eq!((store.files(Kind::Pack).len(), store.files(Kind::Segment).len()), (1, 0));
    assert_eq!(fs::read_dir(store.path().join("topics")).unwrap().count(), 0);
    (0..TOPICS).for_each(|number| store.check(number, 1, 1));
    // An id that is in a pack is still a duplicate.
    store.commit(vec![event(&name(7), 0, 100)]);
    store.check(7, 1, 1);
}

fn few_small_topics_have_their_own_files(store: &mut Store) {
    store.publish_round(20);
    assert_eq!((store.files(Kind::Pack).len(), store.files(Kind::Segment).len()), (0, 20));
    (0..20).for_each(|number| store.check(number, 1, 1));
}

fn a_topic_keeps_few_segments(store: &mut Store) {
    (0..30).for_each(|_| store.publish_round(TOPICS));
    (0..TOPICS).for_each(|number| store.check(number, 1, 30));
    let packs = store.files(Kind::Pack).len();
    assert!(packs <= 9, "{packs} packs");
    let (live, used) = (30 * TOPICS * 100, store.bytes(Kind::Pack));
    assert!(used < 10 * live, "{used} bytes for {live}");
}

fn a_topic_that_grows_gets_a_file(store: &mut Store) {
    store.publish_round(TOPICS);
    for n in 1..80 {
        store.commit(vec![event(&name(5), n, 100)]);
    }
    store.publish_round(0);
    store.check(5, 1, 80);
    let segments = store.files(Kind::Segment);
    assert_eq!(segments.len(), 1, "{segments:?}");
    assert!(segments[0].to_string_lossy().contains(&name(5)));
    (6..TOPICS).for_each(|number| store.check(number, 1, 1));
}

fn a_pack_without_events_is_removed(store: &mut Store) {
    store.publish_round(TOPICS);
    (0..TOPICS).for_each(|number| store.trim(number, 2));
    while !store.files(Kind::Pack).is_empty() {
        std::thread::yield_now();
    }
    store.checkpoint();
    (0..TOPICS).for_each(|number| store.check(number, 2, 1));
    store.publish_round(TOPICS);
    (0..TOPICS).for_each(|number| store.check(number, 2, 2));
}

fn a_pack_that_is_mostly_unused_is_emptied(store: &mut Store) {
    store.publish_round(TOPICS);
    let before = store.files(Kind::Pack);
    (3..TOPICS).for_each(|number| store.trim(number, 2));
    store.checkpoint();
    let after = store.files(Kind::Pack);
    assert_eq!(after.len(), 1);
    assert_ne!(after, before);
    assert!(store.bytes(Kind::Pack) < 1500, "{} bytes", store.bytes(Kind::Pack));
    (0..3).for_each(|number| store.check(number, 1, 1));
    (3..TOPICS).for_each(|number| store.check(number, 2, 1));
}

/// Segments of different days stay apart, so that retention can drop the older ones.
fn retention_by_age_reaches_packed_events(store: &mut Store) {
    let rule = |revision| Retention { max_age_ms: Some(5 * DAY), max_bytes: None, revision };
    for day in 0..20 {
        store.publish_round(TOPICS);
        for number in 0..TOPICS {
            let topic = topic(&name(number));
            store.runtime.block_on(store.engine().retain(&topic, &rule(day + 1))).unwrap();
        }
        store.clock.advance_ms(DAY + 1);
    }
    let left = store.read(&topic(&name(0)));
    assert!(left.len() <= 7, "{left:?}");
    assert_eq!(left.last(), Some(&Seq(20)));
}

fn a_checkpoint_writes_what_changed(store: &mut Store) {
    store.publish_round(1000);
    let edits = store.bytes(Kind::Edit);
    let (events, full) = (vec![event(&name(5), 1, 100)], store.bytes(Kind::Catalog) + edits);
    store.commit(events);
    store.checkpoint();
    let written = store.bytes(Kind::Edit) - edits;
    assert!(full > 100_000 && written < 1000, "{written} bytes for one topic of {full}");
    store.check(5, 1, 2);
}
