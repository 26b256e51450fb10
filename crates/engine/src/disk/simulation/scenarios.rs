//! Single faults on the simulated disk, each followed by a look at what it must not affect.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use prombus_proto::{EncodedEvent, Event, EventId, Headers, Payload, Seq};
use rustix::io::Errno;
use tokio::sync::oneshot;

use super::model::NewCommit;
use super::{NOW, Packing, Simulation, TOPICS, commit_request, read_value, state_key, topic};
use crate::disk::journal::Request;
use crate::disk::read::{self, events};
use crate::disk::storage::file_system::simulated::{Faults, Loss};
use crate::disk::storage::file_system::{Access, FileSystem};
use crate::{
    CommitError, Condition, Damaged, Durability, Incident, ReadBudget, ReadError, Retention,
};

impl Simulation {
    /// A new store without random faults.
    fn quiet() -> Self {
        let mut simulation = Self::new(1);
        simulation.packing =
            Packing { small_files: usize::MAX, packed_bytes: 1 << 10, catalog_edits: 3 };
        simulation.store = simulation.open().ok();
        simulation
    }

    /// Commits one event and one key.
    fn put(&mut self, name: &str) -> Result<(), CommitError> {
        let number = self.model.take_number();
        let (_, id, mut event) = self.new_event(number, 0);
        while event.topic().as_str() != name {
            (_, _, event) = self.new_event(number, 0);
        }
        let keys = vec![(format!("key {number}"), Some("x".repeat(200)))];
        let commit =
            NewCommit { number, deleted: None, events: vec![(name.to_owned(), id, event)], keys };
        let (request, mut reply) = commit_request(&commit, Durability::Fsync);
        self.store().journal.serve_all(vec![request]);
        reply.try_recv().expect("an answer").0.map(drop)
    }

    /// Commits one event to each topic, so many times, and checkpoints them.
    fn put_to_all(&mut self, rounds: u64) {
        for _ in 0..rounds {
            TOPICS.iter().for_each(|name| self.put(name).expect("nothing fails"));
            self.work();
        }
    }

    /// Commits an event to each of so many topics, all in one frame.
    fn put_to_many(&mut self, topics: u64) {
        let number = self.model.take_number();
        let event = |n: u64| event_of(&format!("t{n}"), &format!("{number}/{n}"));
        self.commit_all(&NewCommit {
            number,
            deleted: None,
            events: (0..topics).map(event).collect(),
            keys: vec![],
        });
    }

    fn commit_all(&mut self, commit: &NewCommit) {
        let (request, mut reply) = commit_request(commit, Durability::Fsync);
        self.store().journal.serve_all(vec![request]);
        reply.try_recv().expect("an answer").0.expect("stored");
    }

    /// Fills the log, so that everything in it is checkpointed.
    fn checkpoint_all(&mut self) {
        let logs = self.files("wal");
        while self.files("wal").iter().any(|log| logs.contains(log)) {
            let number = self.model.take_number();
            let keys = vec![("key".to_owned(), Some("x".repeat(1000)))];
            self.commit_all(&NewCommit { number, deleted: None, events: vec![], keys });
            self.work();
        }
    }

    fn retain_bytes(&mut self, name: &str, bytes: u64) -> Result<(), CommitError> {
        self.apply_rule(name, Retention { max_age_ms: None, max_bytes: Some(bytes), revision: 1 })
    }

    fn apply_rule(&mut self, name: &str, rule: Retention) -> Result<(), CommitError> {
        let (reply, mut answer) = oneshot::channel();
        let request = Request::Retain { topic: topic(name), rule, reply };
        self.store().journal.serve_all(vec![request]);
        answer.try_recv().expect("an answer").map(drop)
    }

    fn files(&self, extension: &str) -> Vec<PathBuf> {
        let mut files = self.disk.paths();
        files.retain(|path| path.extension().is_some_and(|found| found == extension));
        files
    }

    /// The events of a topic that can be read, and the ranges that cannot.
    fn read_around_damage(&mut self, name: &str) -> (Vec<Seq>, Vec<(Seq, Seq)>) {
        let (mut found, mut damaged, mut from) = (Vec::new(), Vec::new(), Seq::FIRST);
        let shared = &self.store().shared;
        loop {
            match events::read(shared, &topic(name), from, ReadBudget::of_bytes(8 << 10)) {
                Ok(page) => match page.events.last() {
                    None => return (found, damaged),
                    Some(last) => {
                        from = last.seq.next();
                        found.extend(page.events.iter().map(|event| event.seq));
                    }
                },
                Err(ReadError::Damaged(Damaged::Events { first, last, .. })) => {
                    assert!(last >= from, "reading makes no progress");
                    damaged.push((first, last));
                    from = last.next();
                }
                Err(error) => panic!("the rest is not readable: {error}"),
            }
        }
    }
}

fn event_of(name: &str, id: &str) -> (String, EventId, EncodedEvent) {
    let id = EventId::new(id).expect("a valid id");
    let event = Event {
        id: id.clone(),
        ts: NOW,
        topic: topic(name),
        key: None,
        headers: Headers::default(),
        payload: Payload::parse(Bytes::from(format!("\"{}\"", "x".repeat(200)))).expect("JSON"),
        caused_by: vec![],
        tags: vec![],
        sid: None,
    };
    (name.to_owned(), id, event.encode())
}

#[test]
fn retention_frees_a_disk_that_is_full_to_the_last_byte() {
    let mut simulation = Simulation::quiet();
    simulation.disk.set_capacity(150 << 10);
    simulation.work();
    while simulation.put("orders").is_ok() {
        simulation.work();
    }
    // Whatever is left is taken by somebody else.
    let used = simulation.disk.used();
    simulation.disk.set_capacity(used);
    simulation.work();
    assert!(matches!(simulation.put("orders"), Err(CommitError::Full(_))));
    simulation
        .retain_bytes("orders", 30 << 10)
        .expect("a trim needs no more space than the reserve");
    simulation.work();
    let left = simulation.disk.used();
    assert!(left < used - (10 << 10), "{left} of {used} bytes are still in use");
    simulation.put("orders").expect("there is room again");
    assert_eq!(simulation.store().shared.condition(), Condition::Healthy);
}

#[test]
fn running_out_of_descriptors_does_not_poison_the_store() {
    let mut simulation = Simulation::quiet();
    for _ in 0..40 {
        simulation.put("orders").expect("nothing fails yet");
        simulation.disk.set_faults(Some(Faults { error: Errno::MFILE, one_in: 1 }));
        simulation.work();
        let refused = simulation.put("orders");
        assert!(!matches!(simulation.store().shared.condition(), Condition::Poisoned(_)));
        drop(refused);
        simulation.disk.set_faults(None);
        simulation.work();
    }
    assert_eq!(simulation.store().shared.condition(), Condition::Healthy);
}

#[test]
fn running_out_of_descriptors_is_not_damage() {
    let mut simulation = Simulation::quiet();
    simulation.put_to_all(40);
    for _ in 0..60 {
        // Nothing is open yet.
        simulation.store = simulation.open().ok();
        simulation.disk.set_faults(Some(Faults { error: Errno::MFILE, one_in: 2 }));
        let shared = Arc::clone(&simulation.store().shared);
        let read = events::read(&shared, &topic("orders"), Seq(9), ReadBudget::of_events(1));
        simulation.disk.set_faults(None);
        assert!(matches!(read, Ok(_) | Err(ReadError::Unavailable(_))), "{read:?}");
        assert_eq!(shared.incidents(), []);
    }
}

#[test]
fn a_clock_that_was_ahead_does_not_end_retention_by_age() {
    let day = 24 * 60 * 60 * 1000;
    let mut simulation = Simulation::quiet();
    let mut revision = 0;
    let mut retain = |simulation: &mut Simulation| {
        revision += 1;
        let rule = Retention { max_age_ms: Some(day), max_bytes: None, revision };
        simulation.apply_rule("t0", rule).expect("served");
    };
    simulation.put_to_many(1);
    retain(&mut simulation);
    simulation.clock.advance_ms(300 * day);
    simulation.put_to_many(1);
    simulation.checkpoint_all();
    simulation.clock.set(NOW.plus_ms(1000));
    for _ in 0..8 {
        simulation.put_to_many(1);
        simulation.checkpoint_all();
    }
    // Events keep coming, so that the last of them is never old.
    simulation.clock.advance_ms(2 * day);
    simulation.put_to_many(1);
    simulation.checkpoint_all();
    retain(&mut simulation);
    let bounds = simulation.store().shared.view().topics[&topic("t0")].bounds();
    assert_eq!(bounds.first, Seq(11), "{bounds:?}");
}

#[test]
fn a_pack_that_is_mostly_unused_is_emptied_after_a_restart_as_well() {
    let mut simulation = Simulation::quiet();
    simulation.packing = Packing { small_files: 0, packed_bytes: 4 << 10, catalog_edits: 64 };
    simulation.store = simulation.open().ok();
    let trim = |simulation: &mut Simulation, topics: std::ops::Range<u64>| {
        for n in topics {
            let (reply, mut answer) = oneshot::channel();
            let request = Request::Trim { topic: topic(&format!("t{n}")), below: Seq(2), reply };
            simulation.store().journal.serve_all(vec![request]);
            answer.try_recv().expect("an answer").expect("trimmed");
        }
    };
    // The names are in the order in which they are packed.
    simulation.put_to_many(10);
    simulation.checkpoint_all();
    let pack = simulation.files("pack").remove(0);
    trim(&mut simulation, 6..10);
    simulation.checkpoint_all();
    assert!(simulation.files("pack").contains(&pack), "more than half of it is in use");
    simulation.store = simulation.open().ok();
    trim(&mut simulation, 4..6);
    simulation.checkpoint_all();
    assert!(!simulation.files("pack").contains(&pack));
    for n in 0..4 {
        assert_eq!(simulation.read_around_damage(&format!("t{n}")), (vec![Seq(1)], vec![]));
    }
}

#[test]
fn an_unreadable_page_of_a_segment_hides_only_its_events() {
    let mut simulation = Simulation::quiet();
    (0..60).for_each(|_| simulation.put("orders").expect("nothing fails"));
    simulation.work();
    let segment = simulation.files("seg")[0].clone();
    simulation.disk.damage_sector(&segment, 3000);
    let (found, damaged) = simulation.read_around_damage("orders");
    assert!(!damaged.is_empty());
    assert!(found.contains(&Seq(1)) && found.contains(&Seq(60)), "{found:?} {damaged:?}");
    let lost: u64 = damaged.iter().map(|(first, last)| last.0 - first.0 + 1).sum();
    assert_eq!(found.len() as u64 + lost, 60);
    assert!(lost < 20, "{damaged:?}");
}

#[test]
fn a_store_starts_although_the_first_page_of_a_file_is_unreadable() {
    let last_of = |simulation: &Simulation, extension: &str| {
        let found = simulation.files(extension).into_iter().next_back();
        found.unwrap_or_else(|| panic!("no .{extension} file"))
    };
    for extension in ["catalog", "catalog.mirror", "edit", "mirror", "seg", "idx", "pack"] {
        let mut simulation = Simulation::quiet();
        if extension == "pack" {
            simulation.packing.small_files = 0;
            simulation.packing.packed_bytes = 64 << 10;
            simulation.store = simulation.open().ok();
        }
        simulation.put_to_all(40);
        let path = match extension {
            "catalog" | "catalog.mirror" => PathBuf::from("/store").join(extension),
            extension => last_of(&simulation, extension),
        };
        simulation.store = None;
        simulation.disk.damage_sector(&path, 0);
        let opened = simulation.open();
        simulation.store = Some(opened.unwrap_or_else(|error| panic!("{extension}: {error}")));
        let is_reported = |incident: &Incident| match incident {
            Incident::Rebuilt { file, .. } => *file == path,
            _ => false,
        };
        assert!(simulation.store().shared.incidents().iter().any(is_reported), "{extension}");
        let mut lost = 0;
        for name in TOPICS {
            let (found, damaged) = simulation.read_around_damage(name);
            let missing: u64 = damaged.iter().map(|(first, last)| last.0 - first.0 + 1).sum();
            assert_eq!(found.len() as u64 + missing, 40, "{extension} {name}");
            lost += missing;
        }
        let is_copied = !matches!(extension, "seg" | "pack");
        assert!(if is_copied { lost == 0 } else { lost < 8 }, "{extension}: {lost}");
        simulation.put_to_all(20);
        assert_eq!(simulation.store().shared.condition(), Condition::Healthy, "{extension}");
        let read = TOPICS.map(|name| simulation.read_around_damage(name).0.len() as u64);
        assert_eq!(read.iter().sum::<u64>() + lost, 60 * TOPICS.len() as u64, "{extension}");
    }
}

#[test]
fn an_unreadable_header_of_a_segment_in_use_stops_no_checkpoint() {
    let mut simulation = Simulation::quiet();
    simulation.put_to_all(20);
    let segments = simulation.files("seg");
    segments.iter().for_each(|path| simulation.disk.damage_sector(path, 0));
    simulation.put_to_all(20);
    assert_eq!(simulation.store().shared.condition(), Condition::Healthy);
    assert!(simulation.files("seg").len() > segments.len(), "nothing is appended behind damage");
    for name in TOPICS {
        let (found, _) = simulation.read_around_damage(name);
        assert!(found.len() > 30 && found.contains(&Seq(40)), "{name}: {found:?}");
    }
}

#[test]
fn a_segment_that_was_not_written_back_keeps_its_log() {
    let mut simulation = Simulation::quiet();
    // More files than are synced one by one.
    for _ in 0..3 {
        simulation.put_to_many(70);
        simulation.work();
    }
    let segments = simulation.files("seg");
    assert!(segments.len() >= 70);
    simulation.put_to_many(70);
    simulation.put_to_many(70);
    let logs = simulation.files("wal");
    simulation.disk.fail_write_back(&segments[7]);
    simulation.work();
    let condition = simulation.store().shared.condition();
    assert!(matches!(condition, Condition::Poisoned(_)), "{condition:?}");
    assert!(logs.iter().all(|log| simulation.files("wal").contains(log)));
    simulation.store = None;
    simulation.disk.restart(Loss::AllOrNothing);
    simulation.store = Some(simulation.open().expect("it starts"));
    for n in 0..70 {
        assert_eq!(
            simulation.read_around_damage(&format!("t{n}")),
            ((1..=5).map(Seq).collect(), vec![])
        );
    }
}

#[test]
fn an_unreadable_page_of_the_log_hides_only_its_events() {
    let mut simulation = Simulation::quiet();
    (0..30).for_each(|_| simulation.put("orders").expect("nothing fails"));
    let logs = simulation.files("wal");
    simulation.store = None;
    simulation.disk.damage_sector(&logs[1], 2000);
    simulation.store = Some(simulation.open().expect("the rest of the log is readable"));
    let (found, damaged) = simulation.read_around_damage("orders");
    assert!(!damaged.is_empty());
    let lost: u64 = damaged.iter().map(|(first, last)| last.0 - first.0 + 1).sum();
    assert_eq!(found.len() as u64 + lost, 30);
    assert!(found.contains(&Seq(1)) && found.contains(&Seq(30)), "{found:?} {damaged:?}");
    let incidents = simulation.store().shared.incidents();
    assert!(incidents.iter().any(|incident| matches!(incident, Incident::DamagedLog { .. })));
}

#[test]
fn an_unreadable_part_of_the_last_frame_hides_only_its_events() {
    // The header, records and the footer of the last frame.
    for part in 0..8 {
        let mut simulation = Simulation::quiet();
        simulation.put_to_many(1);
        let number = simulation.model.take_number();
        let events = (0..40).map(|n| event_of("t0", &format!("{number}/{n}"))).collect();
        simulation.commit_all(&NewCommit { number, deleted: None, events, keys: vec![] });
        let extent = {
            let shared = Arc::clone(&simulation.store().shared);
            let view = shared.view();
            view.topics[&topic("t0")].wal.back().expect("an extent").clone()
        };
        let log = extent.file.path.clone();
        simulation.store = None;
        let (start, bytes) = (extent.offset - 100, u64::from(extent.bytes) + 200);
        let at = usize::try_from(start + bytes * part / 8).expect("small");
        simulation.disk.damage_sector(&log, at);
        simulation.store = Some(simulation.open().expect("the rest of the log is readable"));
        let (found, damaged) = simulation.read_around_damage("t0");
        let lost: u64 = damaged.iter().map(|(first, last)| last.0 - first.0 + 1).sum();
        assert_eq!(found.len() as u64 + lost, 41, "part {part}: {damaged:?}");
        // Those before the unreadable page.
        assert!(found.len() as u64 + 15 >= 41 * part / 8, "part {part}: {damaged:?}");
        // What is left does not depend on the log.
        simulation.put_to_many(1);
        simulation.work();
        assert_eq!(simulation.read_around_damage("t0").0.len(), found.len() + 1);
    }
}

#[test]
fn a_full_disk_does_not_keep_a_store_from_starting() {
    // An unfinished batch at the end of the log has to be copied before it is cut off.
    let mut simulation = Simulation::quiet();
    simulation.put_to_all(3);
    simulation.put("orders").expect("nothing fails");
    simulation.work();
    let log = simulation.files("wal").pop().expect("a log");
    let fs = FileSystem::Simulated(Arc::clone(&simulation.disk));
    simulation.store = None;
    let content = fs.read(&log).expect("no faults");
    let end = content.iter().rposition(|byte| *byte != 0).expect("a frame") + 1;
    let file = fs.open(&log, Access::Write).expect("it exists");
    file.write_all_at(&[0xAB; 700], end as u64).expect("no faults");
    simulation.disk.set_capacity(simulation.disk.used());
    simulation.store = Some(simulation.open().expect("it starts"));
    let incidents = simulation.store().shared.incidents();
    assert!(matches!(incidents[..], [Incident::TornTail { .. }]), "{incidents:?}");
    // A process was killed between the names of two copies.
    for copy in ["mirror", "edit"] {
        let mut simulation = Simulation::quiet();
        simulation.packing.catalog_edits = 64;
        simulation.store = simulation.open().ok();
        simulation.put_to_all(20);
        simulation.store = None;
        let lost = simulation.files(copy).pop().expect("an edit");
        let fs = FileSystem::Simulated(Arc::clone(&simulation.disk));
        fs.remove_file(&lost).expect("no faults");
        simulation.disk.set_capacity(simulation.disk.used());
        simulation.store = Some(simulation.open().expect("it starts"));
        simulation.work();
        simulation.disk.set_capacity(usize::MAX);
        simulation.put_to_all(5);
        // There are two copies again, so that one of them may be damaged.
        simulation.store = None;
        simulation.disk.flip_bit(&PathBuf::from("/store/catalog"), 50);
        simulation.store = Some(simulation.open().expect("it starts"));
        for name in TOPICS {
            assert_eq!(simulation.read_around_damage(name).0.len(), 25);
        }
    }
}

#[test]
fn a_kept_log_without_index_and_with_a_bad_frame_is_readable_around_it() {
    let mut simulation = Simulation::quiet();
    (0..60).for_each(|_| simulation.put("orders").expect("nothing fails"));
    simulation.work();
    let segments = simulation.files("seg");
    simulation.store = None;
    for index in simulation.files("idx") {
        simulation.disk.flip_bit(&index, 50);
    }
    for segment in &segments {
        simulation.disk.flip_bit(segment, 2000);
    }
    simulation.store = Some(simulation.open().expect("the catalog is intact"));
    let (found, damaged) = simulation.read_around_damage("orders");
    let lost: u64 = damaged.iter().map(|(first, last)| last.0 - first.0 + 1).sum();
    assert_eq!(found.len() as u64 + lost, 60, "{damaged:?}");
    assert!(found.len() > 30, "{damaged:?}");
}

#[test]
fn files_that_no_catalog_names_are_swept() {
    let mut simulation = Simulation::quiet();
    (0..60).for_each(|_| simulation.put("orders").expect("nothing fails"));
    simulation.work();
    let number = format!("{:020}", 999_999);
    let left: Vec<_> = ["topics/orders/N.seg", "topics/orders/N.idx", "ids/N.ids", "state/N.kv"]
        .map(|path| PathBuf::from("/store").join(path.replace('N', &number)))
        .into();
    left.iter().for_each(|path| simulation.disk.add_file(path));
    let before = simulation.files("seg").len();
    simulation.store = None;
    simulation.store = simulation.open().ok();
    (0..3).for_each(|_| simulation.work());
    let paths = simulation.disk.paths();
    assert!(left.iter().all(|path| !paths.contains(path)));
    assert!(simulation.files("seg").len() >= before - 1);
    let (found, damaged) = simulation.read_around_damage("orders");
    assert_eq!((found.len(), damaged.len()), (60, 0));
}

#[test]
fn a_store_with_damaged_state_starts_with_what_is_left_if_asked_to() {
    let mut simulation = Simulation::quiet();
    (0..60).for_each(|_| simulation.put("orders").expect("nothing fails"));
    simulation.work();
    let keys = |simulation: &mut Simulation| {
        let shared = &simulation.store().shared;
        (1..=60).filter(|n| read_value(shared, &format!("key {n}")).is_some()).count()
    };
    assert_eq!(keys(&mut simulation), 60);
    let state = simulation.files("kv");
    simulation.store = None;
    simulation.disk.flip_bit(&state[0], 700);
    simulation.start_damaged = true;
    simulation.store = Some(simulation.open().expect("it starts"));
    let left = keys(&mut simulation);
    assert!((20..60).contains(&left), "{left} of 60 keys are left");
    let incidents = simulation.store().shared.incidents();
    assert!(incidents.iter().any(|incident| matches!(incident, Incident::DamagedState { .. })));
    // The damage is gone for the next start.
    simulation.start_damaged = false;
    simulation.store = None;
    simulation.store = Some(simulation.open().expect("it starts"));
    assert_eq!(keys(&mut simulation), left);
}

#[test]
fn a_temporary_error_is_not_damaged_state() {
    let mut simulation = Simulation::quiet();
    while simulation.store().shared.state_runs().runs.is_empty() {
        simulation.put("orders").expect("nothing fails yet");
        simulation.work();
    }
    let shared = Arc::clone(&simulation.store().shared);
    simulation.disk.set_faults(Some(Faults { error: Errno::NOMEM, one_in: 1 }));
    let refused = read::state::get(&shared, &state_key("key 1"));
    assert!(matches!(refused, Err(ReadError::Unavailable(_))), "{refused:?}");
    simulation.disk.set_faults(None);
    assert!(read::state::get(&shared, &state_key("key 1")).is_ok_and(|entry| entry.is_some()));
    assert_eq!(shared.incidents(), []);
}
