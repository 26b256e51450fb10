//! Single faults on the simulated disk, each followed by a look at what it must not affect.

use std::path::PathBuf;
use std::sync::Arc;

use prombus_proto::Seq;
use rustix::io::Errno;
use tokio::sync::oneshot;

use super::model::NewCommit;
use super::{Packing, Simulation, commit_request, read_value, state_key, topic};
use crate::disk::journal::Request;
use crate::disk::read::{self, events};
use crate::disk::storage::file_system::simulated::Faults;
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
        let commit = NewCommit { number, events: vec![(name.to_owned(), id, event)], keys };
        let (request, mut reply) = commit_request(&commit, Durability::Fsync);
        self.store().journal.serve_all(vec![request]);
        reply.try_recv().expect("an answer").0.map(drop)
    }

    fn retain_bytes(&mut self, name: &str, bytes: u64) -> Result<(), CommitError> {
        let rule = Retention { max_age_ms: None, max_bytes: Some(bytes), revision: 1 };
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
