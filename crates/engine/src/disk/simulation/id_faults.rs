//! What becomes of commits when the id runs cannot be read.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use prombus_proto::{Event, EventId, Headers, Payload};
use rustix::io::Errno;
use tokio::sync::oneshot;

use super::model::NewCommit;
use super::{NOW, Packing, Simulation, TOPICS, commit_request, topic};
use crate::disk::journal::Request;
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
    let commit = NewCommit { number, deleted: None, events, keys: vec![] };
    let (request, mut reply) = commit_request(&commit, Durability::Fsync);
    simulation.store().journal.serve_all(vec![request]);
    let (answer, _) = reply.try_recv().expect("the journal answers before it returns");
    simulation.model.answered(commit, answer.clone());
    answer
}

#[test]
fn the_ids_of_trimmed_events_take_no_space_for_ever() {
    let mut simulation = Simulation::new(1);
    simulation.reopen();
    for round in 0..600 {
        let id = format!("random {round}");
        let committed = commit_with_id(&mut simulation, &id).expect("stored");
        let below = committed.positions[0].seq.next();
        let (reply, mut answer) = oneshot::channel();
        let request = Request::Trim { topic: topic(TOPICS[0]), below, reply };
        simulation.store().journal.serve_all(vec![request]);
        answer.try_recv().expect("an answer").expect("trimmed");
        for _ in 0..8 {
            // Fills the log.
            let number = simulation.model.take_number();
            let keys = vec![("key".to_owned(), Some("x".repeat(1000)))];
            let commit = NewCommit { number, deleted: None, events: vec![], keys };
            let (request, _) = commit_request(&commit, Durability::Fsync);
            simulation.store().journal.serve_all(vec![request]);
        }
        simulation.work();
    }
    let runs = simulation.store().shared.ids().index.runs.clone();
    let pages: u64 = runs.iter().map(|run| run.info.home_pages).sum();
    assert!(pages <= 30, "{pages} pages in {} runs", runs.len());
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

#[test]
fn a_rebuilt_index_finds_every_id_and_has_those_that_the_segments_do_not_find() {
    for small_files in [0, usize::MAX] {
        let mut simulation = Simulation::new(1);
        simulation.packing = Packing { small_files, packed_bytes: 4 << 10, catalog_edits: 3 };
        simulation.reopen();
        let v7 = |millis: u64, n: u64| {
            format!("{:08x}-{:04x}-7000-8000-{n:012x}", millis >> 16, millis & 0xFFFF)
        };
        let ids: Vec<_> = (0..600)
            .map(|n| match n % 10 {
                0 => format!("random {n}"),
                1 => v7(NOW.0 - 1000 + n, n),
                2 => v7(NOW.0 + 120_000 + n * 100, n),
                _ => v7(NOW.0 + n * 100, n),
            })
            .collect();
        for id in &ids {
            commit_with_id(&mut simulation, id).expect("stored");
            simulation.clock.advance_ms(100);
            simulation.work();
        }
        let runs = simulation.store().shared.ids().index.runs.clone();
        let fs = FileSystem::Simulated(Arc::clone(&simulation.disk));
        simulation.store = None;
        runs.iter().for_each(|run| fs.remove_file(&run.path).expect("removed"));
        simulation.store = simulation.open().ok();
        (0..10).for_each(|_| {
            simulation.work();
        });
        let shared = Arc::clone(&simulation.store().shared);
        assert!(!shared.id_rebuild_requested.load(Ordering::SeqCst));
        let runs = shared.ids().index.runs.clone();
        let hashed = runs.iter().map(|run| run.iter().count()).sum::<usize>();
        assert!(hashed < ids.len() / 2, "{hashed} of {} ids are hashed", ids.len());
        for id in &ids {
            let committed = commit_with_id(&mut simulation, id).expect("looked up");
            assert!(committed.positions[0].duplicate, "{id}");
        }
    }
}
