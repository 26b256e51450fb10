//! Everything that was acknowledged survives a restart.

use prombus_proto::{Clock, Event, EventId, Seq};

use super::case::{Case, cases};
use super::idempotence::ids_of_every_kind;
use super::test_store::{
    TestStore, all_as_stored, delete, ends, found_at, of_events, of_state, put, put_if, put_until,
    stored_at, topic,
};
use crate::{Batch, CommitError, Condition, Durability, Expect, Position, Retention};

pub(super) fn cases() -> Vec<Case> {
    cases![
        events_survive_and_numbering_continues,
        buffered_events_survive_a_clean_close,
        topics_and_their_bounds_survive,
        every_kind_of_id_is_still_deduplicated,
        seeking_by_time_and_id_still_works,
        state_survives_with_its_versions,
        versions_keep_increasing,
        expiry_survives,
        deleted_state_stays_deleted,
        trimmed_events_stay_trimmed,
        a_topic_trimmed_empty_continues_its_numbering,
        a_trimmed_id_can_be_stored_again,
        the_effect_of_retention_survives,
        an_older_rule_is_still_refused,
        a_refused_batch_does_not_reappear,
        a_watch_starts_at_the_last_position,
        an_empty_store_opens_empty,
        restart_after_restart_loses_nothing,
    ]
}

async fn events_survive_and_numbering_continues(mut store: TestStore) {
    let mut all = store.fill("a", 10).await;
    store.restart().await;
    assert_eq!(store.engine().health().condition, Condition::Healthy);
    assert_eq!(store.engine().health().incidents, []);
    assert_eq!(store.read_all("a").await, all_as_stored(&all, 1));
    let more = store.events("a", 2);
    assert_eq!(store.append(&more).await, stored_at([11, 12]));
    all.extend(more);
    assert_eq!(store.read_all("a").await, all_as_stored(&all, 1));
}

async fn buffered_events_survive_a_clean_close(mut store: TestStore) {
    let events = store.events("a", 10);
    for event in &events {
        let batch =
            Batch { durability: Durability::Buffered, ..of_events(std::slice::from_ref(event)) };
        store.commit(batch).await;
    }
    store.restart().await;
    assert_eq!(store.read_all("a").await, all_as_stored(&events, 1));
}

async fn topics_and_their_bounds_survive(mut store: TestStore) {
    for (name, count) in [("b", 3), ("a.b", 1), ("a", 7)] {
        store.fill(name, count).await;
    }
    store.trim("b", u64::MAX).await;
    store.trim("a", 3).await;
    store.restart().await;
    assert_eq!(store.topic_names().await, ["a", "a.b", "b"]);
    assert_eq!(ends(store.bounds("a").await), (3, 8));
    assert_eq!(ends(store.bounds("a.b").await), (1, 2));
    assert_eq!(ends(store.bounds("b").await), (4, 4));
}

fn with_id(store: &TestStore, id: EventId) -> Event {
    Event { id, ..store.event("a") }
}

async fn every_kind_of_id_is_still_deduplicated(mut store: TestStore) {
    let events: Vec<Event> =
        ids_of_every_kind().into_iter().map(|id| with_id(&store, id)).collect();
    let count = events.len() as u64;
    store.append(&events).await;
    for _ in 0..2 {
        store.restart().await;
        let found: Vec<Position> = (1..=count).map(found_at).collect();
        assert_eq!(store.append(&events).await, found);
        let within = store.event("a");
        let next = store.bounds("a").await.next.0;
        assert_eq!(
            store.append(&[within.clone(), within]).await,
            [stored_at([next])[0], found_at(next)]
        );
    }
}

async fn seeking_by_time_and_id_still_works(mut store: TestStore) {
    let events = store.fill_at("a", &[500, 100, 900, 50]).await;
    store.restart().await;
    for (seq, event) in (1..).zip(&events) {
        assert_eq!(store.seek_id("a", &event.id).await, Some(seq));
    }
    for (ts, seq) in [(0, 1), (501, 3), (901, 5)] {
        assert_eq!(store.seek_time("a", ts).await, seq);
    }
}

async fn state_survives_with_its_versions(mut store: TestStore) {
    let end = store.clock.now().plus_ms(1000);
    store.put("a", "1").await;
    store.put("b", "").await;
    store.commit(of_state(vec![put_until("c", "3", end), put("a", "4")])).await;
    let before = store.engine().scan(b"", None, 10).await.unwrap();
    assert_eq!(before.len(), 3);
    store.restart().await;
    assert_eq!(store.engine().scan(b"", None, 10).await.unwrap(), before);
    for entry in before {
        let expect = Expect::Version(entry.version);
        let name = String::from_utf8(entry.key.as_bytes().to_vec()).unwrap();
        store.commit(of_state(vec![put_if(&name, "new", expect)])).await;
    }
}

async fn versions_keep_increasing(mut store: TestStore) {
    let mut last = store.put("k", "v").await;
    // Also after commits that left no value from which to derive the last version.
    for batch in [
        of_state(vec![delete("k")]),
        of_events(&[store.event("a")]),
        of_events(&[]),
        of_state(vec![put("k", "v")]),
    ] {
        let version = store.commit(batch).await.version;
        assert!(version > last, "{version:?} after {last:?}");
        store.restart().await;
        last = store.put("other", "v").await;
        assert!(last > version, "{last:?} after a restart and {version:?}");
    }
}

async fn expiry_survives(mut store: TestStore) {
    let end = store.clock.now().plus_ms(1000);
    store.commit(of_state(vec![put_until("k", "v", end), put("stays", "v")])).await;
    store.restart().await;
    assert_eq!(store.get("k").await.unwrap().expires_at, Some(end));
    store.clock.advance_ms(1000);
    assert_eq!(store.get("k").await, None);
    store.restart().await;
    assert_eq!(store.scan(b"", None, 10).await, [b"stays"]);
    store.commit(of_state(vec![put_if("k", "new", Expect::Absent)])).await;
}

async fn deleted_state_stays_deleted(mut store: TestStore) {
    store.put("k", "v").await;
    store.put("other", "v").await;
    store.restart().await;
    store.commit(of_state(vec![delete("k")])).await;
    store.restart().await;
    assert_eq!(store.get("k").await, None);
    assert_eq!(store.scan(b"", None, 10).await, [b"other"]);
}

async fn trimmed_events_stay_trimmed(mut store: TestStore) {
    let events = store.fill("a", 10).await;
    store.trim("a", 6).await;
    store.restart().await;
    assert_eq!(store.read_all("a").await, all_as_stored(&events[5..], 6));
    assert_eq!(store.seek_id("a", &events[0].id).await, None);
    assert_eq!(ends(store.trim("a", 3).await), (6, 11));
}

async fn a_topic_trimmed_empty_continues_its_numbering(mut store: TestStore) {
    store.fill("a", 3).await;
    store.trim("a", u64::MAX).await;
    store.restart().await;
    assert_eq!(ends(store.bounds("a").await), (4, 4));
    store.restart().await;
    assert_eq!(store.append(&[store.event("a")]).await, stored_at([4]));
    store.restart().await;
    assert_eq!(ends(store.bounds("a").await), (4, 5));
}

async fn a_trimmed_id_can_be_stored_again(mut store: TestStore) {
    let events = store.fill("a", 4).await;
    store.trim("a", 3).await;
    store.restart().await;
    assert_eq!(
        store.append(&events).await,
        [stored_at([5])[0], stored_at([6])[0], found_at(3), found_at(4)]
    );
    store.restart().await;
    assert_eq!(store.append(&events[..1]).await, [found_at(5)]);
}

async fn the_effect_of_retention_survives(mut store: TestStore) {
    let mut events = store.fill("a", 2).await;
    store.clock.advance_ms(5000);
    events.extend(store.fill("a", 1).await);
    let rule = Retention { max_age_ms: Some(1000), ..Retention::default() };
    let left = store.engine().retain(&topic("a"), &rule).await.unwrap();
    store.restart().await;
    assert_eq!(ends(store.bounds("a").await), ends(left));
    let gone = usize::try_from(left.first.0).unwrap() - 1;
    assert_eq!(store.read_all("a").await, all_as_stored(&events[gone..], left.first.0));
}

async fn an_older_rule_is_still_refused(mut store: TestStore) {
    store.fill("a", 2).await;
    let rule = |revision| Retention {
        max_bytes: (revision < 5).then_some(0),
        revision,
        ..Retention::default()
    };
    for name in ["a", "empty"] {
        let applied = store.engine().retain(&topic(name), &rule(5)).await;
        applied.unwrap();
    }
    store.restart().await;
    for name in ["a", "empty"] {
        let answer = store.engine().retain(&topic(name), &rule(4)).await;
        assert!(
            matches!(answer, Err(CommitError::StaleRule { offered: 4, applied: 5, .. })),
            "{name}: {answer:?}"
        );
    }
    assert_eq!(store.read_all("a").await.len(), 2);
}

async fn a_refused_batch_does_not_reappear(mut store: TestStore) {
    store.fill("a", 1).await;
    let events = store.events("a", 2);
    let refused = Batch {
        expected_last: vec![(topic("a"), Seq(9))],
        state: vec![put("k", "v")],
        ..of_events(&events)
    };
    store.try_commit(refused).await.unwrap_err();
    store.restart().await;
    assert_eq!(store.read_all("a").await.len(), 1);
    assert_eq!(store.get("k").await, None);
    assert_eq!(store.append(&events).await, stored_at([2, 3]));
}

async fn a_watch_starts_at_the_last_position(mut store: TestStore) {
    store.fill("a", 3).await;
    store.restart().await;
    let mut growth = store.engine().watch(&topic("a"));
    assert_eq!(*growth.borrow_and_update(), Seq(3));
    store.fill("a", 1).await;
    growth.wait_for(|seq| *seq == Seq(4)).await.unwrap();
}

async fn an_empty_store_opens_empty(mut store: TestStore) {
    store.restart().await;
    assert_eq!(store.topic_names().await, Vec::<String>::new());
    assert_eq!(store.scan(b"", None, 10).await.len(), 0);
    assert_eq!(store.append(&[store.event("a")]).await, stored_at([1]));
}

async fn restart_after_restart_loses_nothing(mut store: TestStore) {
    let mut all = Vec::new();
    for round in 0..8 {
        all.extend(store.fill("a", round * 5).await);
        store.put(&format!("round{round}"), "done").await;
        store.restart().await;
        assert_eq!(store.read_all("a").await, all_as_stored(&all, 1));
        assert_eq!(store.scan(b"round", None, 100).await.len(), round + 1);
    }
}
