//! Deleting topics.

use prombus_proto::{Event, Seq};

use super::case::{Case, cases};
use super::test_store::{
    EVERYTHING, TestStore, all_as_stored, as_stored, delete, ends, of_events, put, put_if,
    stored_ids, topic,
};
use crate::{Batch, Bounds, CommitError, Durability, Expect, Retention};

pub(super) fn cases() -> Vec<Case> {
    cases![
        a_deleted_topic_is_as_if_it_never_existed,
        deleting_a_topic_that_does_not_exist_changes_nothing,
        a_second_deletion_changes_nothing,
        other_topics_and_state_stay,
        state_changes_with_the_deletion,
        a_refused_batch_deletes_nothing,
        the_ids_of_deleted_events_can_be_stored_again,
        a_deleted_topic_can_be_created_again,
        events_of_the_same_batch_follow_the_deletion,
        a_trimmed_topic_can_be_deleted,
        the_retention_rule_is_forgotten,
        expected_positions_see_no_deleted_topic,
        watchers_of_a_deleted_topic_end,
        a_deletion_reaches_the_highest_durability,
        publishers_of_a_topic_that_is_deleted_again_and_again_lose_nothing_else,
    ]
}

pub(super) fn cases_with_restart() -> Vec<Case> {
    cases![
        a_deletion_survives_a_restart,
        a_topic_created_again_survives_a_restart,
        a_topic_deleted_again_and_again_survives_restarts,
    ]
}

pub(super) fn cases_with_gateways() -> Vec<Case> {
    cases![
        the_other_gateway_sees_the_deletion,
        watchers_of_the_other_gateway_see_the_topic_that_follows,
        gateways_delete_and_publish_at_the_same_time,
    ]
}

/// Positions of new events: consecutive, wherever they begin.
fn consecutive(seqs: &[u64]) -> bool {
    seqs.windows(2).all(|pair| pair[0] + 1 == pair[1])
}

async fn delete_topic(store: &TestStore, name: &str) {
    store.commit(Batch::of_deletion(topic(name), vec![])).await;
}

async fn a_deleted_topic_is_as_if_it_never_existed(store: TestStore) {
    let events = store.fill("a", 10).await;
    delete_topic(&store, "a").await;
    assert_eq!(store.bounds("a").await, Bounds::EMPTY);
    assert_eq!(store.read_all("a").await, []);
    assert_eq!(store.read("a", 5, EVERYTHING).await, []);
    assert_eq!(store.topic_names().await, [""; 0]);
    assert_eq!(store.seek_time("a", 0).await, 1);
    assert_eq!(ends(store.trim("a", 7).await), (1, 1));
    for event in &events {
        assert_eq!(store.seek_id("a", &event.id).await, None);
    }
    assert_eq!(*store.engine().watch(&topic("a")).borrow(), Seq::ZERO);
}

async fn deleting_a_topic_that_does_not_exist_changes_nothing(store: TestStore) {
    delete_topic(&store, "a").await;
    assert_eq!(store.topic_names().await, [""; 0]);
    store.fill("a", 2).await;
    assert_eq!(ends(store.bounds("a").await), (1, 3));
}

async fn a_second_deletion_changes_nothing(store: TestStore) {
    store.fill("a", 3).await;
    delete_topic(&store, "a").await;
    delete_topic(&store, "a").await;
    assert_eq!(store.bounds("a").await, Bounds::EMPTY);
    let events = store.fill("a", 2).await;
    assert_eq!(
        stored_ids(&store.read_all("a").await),
        [events[0].id.clone(), events[1].id.clone()]
    );
}

async fn other_topics_and_state_stay(store: TestStore) {
    let events = store.fill("a.b", 3).await;
    store.fill("a", 3).await;
    store.put("a", "1").await;
    delete_topic(&store, "a").await;
    assert_eq!(store.read_all("a.b").await, all_as_stored(&events, 1));
    assert_eq!(store.topic_names().await, ["a.b"]);
    assert_eq!(store.value("a").await.as_deref(), Some("1"));
}

async fn state_changes_with_the_deletion(store: TestStore) {
    store.fill("a", 3).await;
    store.put("cursor", "3").await;
    let changes = vec![delete("cursor"), put("deleted", "a")];
    store.commit(Batch::of_deletion(topic("a"), changes)).await;
    assert_eq!(store.value("cursor").await, None);
    assert_eq!(store.value("deleted").await.as_deref(), Some("a"));
    assert_eq!(store.topic_names().await, [""; 0]);
}

async fn a_refused_batch_deletes_nothing(store: TestStore) {
    let events = store.fill("a", 3).await;
    store.put("k", "1").await;
    let changes = vec![put_if("k", "2", Expect::Absent)];
    let refused = store.try_commit(Batch::of_deletion(topic("a"), changes)).await;
    assert!(matches!(refused, Err(CommitError::Conflict(_))), "{refused:?}");
    assert_eq!(store.read_all("a").await, all_as_stored(&events, 1));
}

async fn the_ids_of_deleted_events_can_be_stored_again(store: TestStore) {
    let mut events = store.fill("a", 5).await;
    events.extend(
        ["text", "more text"]
            .map(|id| Event { id: prombus_proto::EventId::new(id).unwrap(), ..store.event("a") }),
    );
    store.append(&events[5..]).await;
    delete_topic(&store, "a").await;
    let positions = store.append(&events).await;
    assert!(positions.iter().all(|position| !position.duplicate), "{positions:?}");
    let first = positions[0].seq.0;
    assert_eq!(store.read_all("a").await, all_as_stored(&events, first));
    // From now on they are there.
    let again = store.append(&events).await;
    assert!(again.iter().all(|position| position.duplicate), "{again:?}");
    for (event, position) in events.iter().zip(&positions) {
        assert_eq!(store.seek_id("a", &event.id).await, Some(position.seq.0));
    }
}

async fn a_deleted_topic_can_be_created_again(store: TestStore) {
    for round in 1..=5 {
        store.fill("a", 3).await;
        delete_topic(&store, "a").await;
        let events = store.fill("a", round).await;
        let read = store.read_all("a").await;
        let first = read[0].seq.0;
        assert_eq!(read, all_as_stored(&events, first), "round {round}");
        assert_eq!(ends(store.bounds("a").await), (first, first + round as u64));
        assert_eq!(store.topic_names().await, ["a"]);
        assert_eq!(*store.engine().watch(&topic("a")).borrow(), Seq(first + round as u64 - 1));
    }
}

async fn events_of_the_same_batch_follow_the_deletion(store: TestStore) {
    let before = store.fill("a", 3).await;
    let (kept, new) = (before[1].clone(), store.event("a"));
    let batch = Batch {
        deleted_topics: vec![topic("a")],
        expected_last: vec![(topic("a"), Seq(3))],
        ..of_events(&[kept.clone(), new.clone()])
    };
    let positions = store.commit(batch).await.positions;
    assert!(positions.iter().all(|position| !position.duplicate), "{positions:?}");
    let first = positions[0].seq.0;
    assert_eq!(store.read_all("a").await, [as_stored(&kept, first), as_stored(&new, first + 1)]);
    assert_eq!(store.seek_id("a", &before[0].id).await, None);
}

async fn a_trimmed_topic_can_be_deleted(store: TestStore) {
    store.fill("a", 5).await;
    store.trim("a", u64::MAX).await;
    assert_eq!(store.topic_names().await, ["a"]);
    delete_topic(&store, "a").await;
    assert_eq!(store.topic_names().await, [""; 0]);
    assert_eq!(store.bounds("a").await, Bounds::EMPTY);
}

async fn the_retention_rule_is_forgotten(store: TestStore) {
    let rule = |revision| Retention { max_age_ms: Some(1000), max_bytes: None, revision };
    store.fill("a", 1).await;
    store.engine().retain(&topic("a"), &rule(9)).await.unwrap();
    delete_topic(&store, "a").await;
    store.fill("a", 1).await;
    store.engine().retain(&topic("a"), &rule(2)).await.unwrap();
    let stale = store.engine().retain(&topic("a"), &rule(1)).await;
    assert!(matches!(stale, Err(CommitError::StaleRule { applied: 2, .. })), "{stale:?}");
}

async fn expected_positions_see_no_deleted_topic(store: TestStore) {
    store.fill("a", 4).await;
    delete_topic(&store, "a").await;
    let expecting = |last| Batch {
        expected_last: vec![(topic("a"), Seq(last))],
        ..of_events(&[store.event("a")])
    };
    let refused = store.try_commit(expecting(4)).await;
    assert!(matches!(refused, Err(CommitError::Conflict(_))), "{refused:?}");
    store.commit(expecting(0)).await;
}

async fn watchers_of_a_deleted_topic_end(store: TestStore) {
    store.fill("a", 2).await;
    let mut growth = store.engine().watch(&topic("a"));
    let mut other = store.engine().watch(&topic("b"));
    growth.borrow_and_update();
    delete_topic(&store, "a").await;
    assert!(growth.changed().await.is_err(), "the channel is closed");
    let mut growth = store.engine().watch(&topic("a"));
    growth.borrow_and_update();
    let events = store.fill("a", 2).await;
    growth.changed().await.unwrap();
    let last = store.seek_id("a", &events[1].id).await.unwrap();
    growth.wait_for(|seq| *seq == Seq(last)).await.unwrap();
    store.fill("b", 1).await;
    other.changed().await.unwrap();
}

async fn a_deletion_reaches_the_highest_durability(store: TestStore) {
    store.fill("a", 2).await;
    let batch = Batch {
        durability: Durability::Buffered,
        ..Batch::of_deletion(topic("a"), vec![put("k", "v")])
    };
    let committed = store.commit(batch).await;
    assert_eq!(committed.durability, store.engine().capabilities().max_durability);
}

async fn publishers_of_a_topic_that_is_deleted_again_and_again_lose_nothing_else(store: TestStore) {
    let mine: Vec<_> = (0..40).map(|_| store.events("mine", 3)).collect();
    let theirs: Vec<_> = (0..40).map(|_| store.events("theirs", 2)).collect();
    let publish = async {
        for events in &mine {
            let positions = store.append(events).await;
            let seqs: Vec<_> = positions.iter().map(|position| position.seq.0).collect();
            assert!(consecutive(&seqs), "{seqs:?}");
        }
    };
    let publish_more = async {
        for events in &theirs {
            store.append(events).await;
        }
    };
    let delete = async {
        for _ in 0..20 {
            delete_topic(&store, "mine").await;
        }
    };
    tokio::join!(publish, publish_more, delete);
    let theirs: Vec<_> = theirs.concat();
    assert_eq!(store.read_all("theirs").await, all_as_stored(&theirs, 1));
    let left = store.read_all("mine").await;
    let mine: Vec<_> = mine.concat();
    let tail = &mine[mine.len() - left.len()..];
    let first = left.first().map_or(1, |event| event.seq.0);
    assert_eq!(left, all_as_stored(tail, first), "what is left is the newest of it");
    let last = store.fill("mine", 1).await;
    assert_eq!(stored_ids(&store.read_all("mine").await).last(), Some(&last[0].id));
}

async fn a_deletion_survives_a_restart(mut store: TestStore) {
    let events = store.fill("a", 20).await;
    let others = store.fill("b", 20).await;
    delete_topic(&store, "a").await;
    for _ in 0..3 {
        store.restart().await;
        assert_eq!(store.topic_names().await, ["b"]);
        assert_eq!(store.bounds("a").await, Bounds::EMPTY);
        assert_eq!(store.seek_id("a", &events[7].id).await, None);
        assert_eq!(store.read_all("b").await, all_as_stored(&others, 1));
    }
    let positions = store.append(&events).await;
    assert!(positions.iter().all(|position| !position.duplicate), "{positions:?}");
}

async fn a_topic_created_again_survives_a_restart(mut store: TestStore) {
    store.fill("a", 20).await;
    store.restart().await;
    delete_topic(&store, "a").await;
    let events = store.fill("a", 5).await;
    let read = store.read_all("a").await;
    for _ in 0..3 {
        store.restart().await;
        assert_eq!(store.read_all("a").await, read);
        assert_eq!(stored_ids(&read), super::test_store::ids_of(&events));
        for (event, stored) in events.iter().zip(&read) {
            assert_eq!(store.seek_id("a", &event.id).await, Some(stored.seq.0));
        }
    }
}

async fn a_topic_deleted_again_and_again_survives_restarts(mut store: TestStore) {
    for round in 0..4 {
        store.fill("a", 3 + round).await;
        if round % 2 == 0 {
            store.restart().await;
        }
        delete_topic(&store, "a").await;
        if round % 3 == 0 {
            store.restart().await;
        }
        let events = store.fill("a", 2).await;
        store.restart().await;
        assert_eq!(stored_ids(&store.read_all("a").await), super::test_store::ids_of(&events));
    }
}

async fn the_other_gateway_sees_the_deletion(mut store: TestStore) {
    let other = store.open_another().await;
    let events = store.fill("a", 5).await;
    // It remembers where the topic ends.
    other.commit(of_events(&[store.event("a")])).await.unwrap();
    delete_topic(&store, "a").await;
    assert_eq!(other.bounds(&topic("a")).await.unwrap(), Bounds::EMPTY);
    assert_eq!(other.topics().await.unwrap(), []);
    assert_eq!(other.seek_id(&topic("a"), &events[0].id).await.unwrap(), None);
    let new = store.event("a");
    let position = other.commit(of_events(std::slice::from_ref(&new))).await.unwrap().positions[0];
    assert_eq!(store.read_all("a").await, [as_stored(&new, position.seq.0)]);
    other.close().await.unwrap();
}

async fn watchers_of_the_other_gateway_see_the_topic_that_follows(mut store: TestStore) {
    let other = store.open_another().await;
    store.fill("a", 5).await;
    let mut growth = other.watch(&topic("a"));
    growth.wait_for(|last| *last == Seq(5)).await.unwrap();
    delete_topic(&store, "a").await;
    let event = store.fill("a", 1).await;
    let last = store.seek_id("a", &event[0].id).await.unwrap();
    // Either it is told of the deletion, or of the event.
    loop {
        if growth.changed().await.is_err() {
            growth = other.watch(&topic("a"));
            growth.mark_changed();
        }
        if *growth.borrow_and_update() == Seq(last) {
            break;
        }
    }
    other.close().await.unwrap();
}

async fn gateways_delete_and_publish_at_the_same_time(mut store: TestStore) {
    let other = store.open_another().await;
    let batches: Vec<_> = (0..30).map(|_| store.events("a", 2)).collect();
    let publish = async {
        for events in &batches {
            other.commit(of_events(events)).await.unwrap();
        }
    };
    let delete = async {
        for _ in 0..10 {
            delete_topic(&store, "a").await;
        }
    };
    tokio::join!(publish, delete);
    let left = store.read_all("a").await;
    let all: Vec<_> = batches.concat();
    let tail = &all[all.len() - left.len()..];
    assert_eq!(left, all_as_stored(tail, left.first().map_or(1, |event| event.seq.0)));
    other.close().await.unwrap();
}
