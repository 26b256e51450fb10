//! Several engines on one store at a time, for engines that support it.

use prombus_proto::{Event, Seq};

use super::case::{Case, cases};
use super::test_store::{
    EVERYTHING, TestStore, all_as_stored, found_at, key, of_events, of_state, put, put_if, seqs_of,
    stored_at, topic,
};
use crate::{Batch, CommitError, Expect};

pub(super) fn cases() -> Vec<Case> {
    cases![
        a_commit_of_one_gateway_is_visible_to_the_other,
        an_append_of_one_gateway_wakes_watchers_of_the_other,
        an_id_stored_by_one_gateway_is_a_duplicate_for_the_other,
        expectations_see_the_changes_of_the_other_gateway,
        events_trimmed_by_one_gateway_are_gone_for_the_other,
        concurrent_writers_on_both_gateways_leave_no_gap,
        closing_one_gateway_leaves_the_other_open,
    ]
}

async fn a_commit_of_one_gateway_is_visible_to_the_other(mut store: TestStore) {
    let other = store.open_another().await;
    let batch =
        Batch { state: vec![put("k", "v")], ..of_events(&[store.event("a"), store.event("a")]) };
    let version = store.commit(batch).await.version;
    let page = other.read(&topic("a"), Seq::ZERO, EVERYTHING).await;
    assert_eq!(page.unwrap().events, store.read_all("a").await);
    let entry = other.get(&key("k")).await.unwrap().unwrap();
    assert_eq!(entry.version, version);
    let event = store.event("a");
    let answer = other.commit(of_events(std::slice::from_ref(&event))).await;
    assert_eq!(answer.unwrap().positions, stored_at([3]));
    assert_eq!(store.seek_id("a", &event.id).await, Some(3));
}

async fn an_append_of_one_gateway_wakes_watchers_of_the_other(mut store: TestStore) {
    let other = store.open_another().await;
    let mut growth = other.watch(&topic("a"));
    for last in 1..=3 {
        store.fill("a", 1).await;
        growth.wait_for(|seq| *seq == Seq(last)).await.unwrap();
        let page = other.read(&topic("a"), Seq(last), EVERYTHING).await;
        assert_eq!(seqs_of(&page.unwrap().events), [last]);
    }
}

async fn an_id_stored_by_one_gateway_is_a_duplicate_for_the_other(mut store: TestStore) {
    let other = store.open_another().await;
    let events = store.fill("a", 2).await;
    let answer = other.commit(of_events(&events)).await.unwrap();
    assert_eq!(answer.positions, [found_at(1), found_at(2)]);
}

async fn expectations_see_the_changes_of_the_other_gateway(mut store: TestStore) {
    let other = store.open_another().await;
    let first = store.put("k", "1").await;
    let op = put_if("k", "2", Expect::Version(first));
    let second = other.commit(of_state(vec![op.clone()])).await.unwrap();
    assert!(second.version > first);
    let answer = store.try_commit(of_state(vec![op])).await;
    assert!(matches!(answer, Err(CommitError::Conflict(_))));
    store.fill("a", 1).await;
    let late =
        Batch { expected_last: vec![(topic("a"), Seq::ZERO)], ..of_events(&[store.event("a")]) };
    let answer = other.commit(late).await;
    assert!(matches!(answer, Err(CommitError::Conflict(_))));
}

async fn events_trimmed_by_one_gateway_are_gone_for_the_other(mut store: TestStore) {
    let other = store.open_another().await;
    let events = store.fill("a", 4).await;
    other.trim(&topic("a"), Seq(3)).await.unwrap();
    assert_eq!(store.read_all("a").await, all_as_stored(&events[2..], 3));
    let again = other.commit(of_events(&events[..1])).await.unwrap();
    assert_eq!(again.positions, stored_at([5]));
}

async fn concurrent_writers_on_both_gateways_leave_no_gap(mut store: TestStore) {
    let gateways = [store.engine().clone(), store.open_another().await];
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let engine = gateways[writer % 2].clone();
            let batches: Vec<Vec<Event>> = (0..10).map(|_| store.events("a", 3)).collect();
            tokio::spawn(async move {
                let mut answered = Vec::new();
                for events in batches {
                    let positions = engine.commit(of_events(&events)).await.unwrap().positions;
                    let first = positions[0].seq.0;
                    assert_eq!(positions, stored_at(first..first + 3));
                    answered.push((first, events));
                }
                answered
            })
        })
        .collect();
    let mut answered = Vec::new();
    for writer in writers {
        answered.extend(writer.await.unwrap());
    }
    answered.sort_by_key(|(first, _)| *first);
    let all: Vec<Event> = answered.into_iter().flat_map(|(_, events)| events).collect();
    assert_eq!(store.read_all("a").await, all_as_stored(&all, 1));
}

async fn closing_one_gateway_leaves_the_other_open(mut store: TestStore) {
    let other = store.open_another().await;
    store.fill("a", 1).await;
    other.close().await.unwrap();
    assert_eq!(store.append(&[store.event("a")]).await, stored_at([2]));
}
