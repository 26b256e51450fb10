//! What becomes of commits when the id runs cannot be read.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use prombus_proto::{Event, EventId, Headers, Payload};
use rustix::io::Errno;

use super::model::NewCommit;
use super::{NOW, Simulation, TOPICS, commit_request, topic};
use crate::disk::storage::file_system::FileSystem;
use crate::disk::storage::file_system::simulated::Faults;
use crate::{CommitError, Committed, Durability, Incident, Unavailable};

fn commit_with_id(simulation: &mut Simulation, id: &str) -> Result<Committed, CommitError> {
    let id = EventId::new(id).expect("a valid id");
    let event = Event {
        id: id.clone(),
        ts: NOW,
        topic: topic(TOPICS[0]),
        key: None,
        headers: Headers::default(),
        payload: Payload::parse(Bytes::from_static(b"{}")).expect("valid JSON"),
        caused_by: vec![],
        tags: vec![],
        sid: None,
    };
    let number = simulation.model.take_number();
    let events = vec![(TOPICS[0].to_owned(), id, event.encode())];
    let commit = NewCommit { number, events, keys: vec![] };
    let (request, mut reply) = commit_request(&commit, Durability::Fsync);
    simulation.store().journal.serve_all(vec![request]);
    let (answer, _) = reply.try_recv().expect("the journal answers before it returns");
    simulation.model.answered(commit, answer.clone());
    answer
}

/// A store whose id runs contain `id`.
fn store_with_id_run(id: &str) -> Simulation {
    let mut simulation = Simulation::new(1);
    simulation.reopen();
    commit_with_id(&mut simulation, id).expect("stored");
    while simulation.store().shared.ids().index.runs.is_empty() {
        simulation.commit();
        simulation.work();
    }
    simulation
}

#[test]
fn a_temporary_error_refuses_the_commit_and_rebuilds_nothing() {
    let mut simulation = store_with_id_run("first");
    simulation.disk.set_faults(Some(Faults { error: Errno::NOMEM, one_in: 1 }));
    let refused = commit_with_id(&mut simulation, "first");
    assert!(
        matches!(refused, Err(CommitError::Unavailable(Unavailable::Io { .. }))),
        "{refused:?}"
    );
    let shared = &simulation.store().shared;
    assert!(!shared.id_rebuild_requested.load(Ordering::SeqCst));
    assert_eq!(shared.incidents(), []);
    simulation.disk.end_faults();
    let committed = commit_with_id(&mut simulation, "first").expect("served again");
    assert!(committed.positions[0].duplicate);
}

#[test]
fn a_missing_id_run_refuses_only_ids_that_it_may_contain_until_it_is_rebuilt() {
    let mut simulation = store_with_id_run("first");
    let run = simulation.store().shared.ids().index.runs[0].path.clone();
    simulation.store = None;
    let fs = FileSystem::Simulated(Arc::clone(&simulation.disk));
    fs.remove_file(&run).expect("removed");
    simulation.store = simulation.open().ok();
    let incidents = simulation.store().shared.incidents();
    assert!(matches!(incidents[..], [Incident::Rebuilt { .. }]), "{incidents:?}");
    // Newer than all ids of its topic.
    let fresh = "018bcfe7-0000-7000-8000-000000000000";
    commit_with_id(&mut simulation, fresh).expect("certainly new");
    for _ in 0..3 {
        let refused = commit_with_id(&mut simulation, "first");
        let is_refused = matches!(refused, Err(CommitError::Unavailable(Unavailable::Io { .. })));
        assert!(is_refused, "{refused:?}");
    }
    // The first call sweeps and starts the rebuild, the next one finishes it.
    (0..2).for_each(|_| simulation.work());
    let committed = commit_with_id(&mut simulation, "first").expect("rebuilt");
    assert!(committed.positions[0].duplicate);
    let shared = &simulation.store().shared;
    assert!(!shared.id_rebuild_requested.load(Ordering::SeqCst));
    simulation.check_reading();
}

#[test]
fn a_damaged_filter_never_hides_an_id() {
    let mut simulation = store_with_id_run("first");
    let run = Arc::clone(&simulation.store().shared.ids().index.runs[0]);
    let filter_and_first_page = 32..32 + 4096;
    for offset in filter_and_first_page.step_by(61) {
        simulation.disk.flip_bit(&run.path, offset);
        simulation.store = None;
        simulation.store = simulation.open().ok();
        match commit_with_id(&mut simulation, "first") {
            Ok(committed) => assert!(committed.positions[0].duplicate, "offset {offset}"),
            Err(CommitError::Unavailable(Unavailable::Io { .. })) => {}
            Err(error) => panic!("offset {offset}: {error}"),
        }
        simulation.disk.flip_bit(&run.path, offset);
    }
}
