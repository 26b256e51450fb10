//! What becomes of commits when the id runs cannot be read.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use prombus_proto::{Event, EventId, Headers, Payload};
use rustix::io::Errno;

use super::model::NewCommit;
use super::{NOW, Simulation, TOPICS, commit_request, topic};
use crate::disk::storage::file_system::simulated::Faults;
use crate::{CommitError, Committed, Durability, Unavailable};

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
