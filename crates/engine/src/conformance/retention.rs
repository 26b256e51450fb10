//! Retention rules. An engine may retain more than the rule asks for, never less.

use prombus_proto::{Clock, Event, Seq};

use super::case::{Case, cases};
use super::test_store::{
    TestStore, all_as_stored, ends, found_at, ids_of, payload, stored_at, stored_ids, topic,
};
use crate::{Bounds, CommitError, Retention};

pub(super) fn cases() -> Vec<Case> {
    cases![
        a_rule_without_limits_keeps_everything,
        events_within_the_maximum_age_stay,
        an_old_event_after_a_young_one_leaves_no_gap,
        events_within_the_maximum_size_stay,
        either_limit_may_drop_events_but_only_the_oldest,
        the_remaining_bounds_are_returned,
        a_second_call_changes_nothing,
        numbering_continues_after_retention,
        only_ids_of_retained_events_are_known,
        an_unknown_topic_is_not_created,
        an_older_rule_is_refused,
        an_older_rule_is_refused_even_if_the_newer_one_dropped_nothing,
        the_same_revision_may_be_applied_again,
        each_topic_has_its_own_revision,
    ]
}

fn rule(max_age_ms: Option<u64>, max_bytes: Option<u64>, revision: u64) -> Retention {
    Retention { max_age_ms, max_bytes, revision }
}

impl TestStore {
    async fn retain(&self, topic_name: &str, rule: Retention) -> Bounds {
        let left = self.engine().retain(&topic(topic_name), &rule).await;
        left.unwrap()
    }

    /// Stores one event per age, in milliseconds before now.
    async fn fill_aged(&self, topic_name: &str, ages_ms: &[u64]) -> Vec<Event> {
        let now = self.clock.now();
        let mut all = Vec::new();
        for age in ages_ms {
            self.clock.set(now.minus_ms(*age));
            all.extend(self.fill(topic_name, 1).await);
        }
        self.clock.set(now);
        all
    }

    /// Checks that the topic consists of the last events of `all`, starting at `at_most` or earlier.
    async fn check_retained(&self, topic_name: &str, all: &[Event], at_most: u64) {
        let bounds = self.bounds(topic_name).await;
        assert!(bounds.first.0 <= at_most, "{bounds:?}, but {at_most} must stay");
        assert_eq!(bounds.last(), Seq(all.len() as u64));
        let gone = usize::try_from(bounds.first.0).unwrap() - 1;
        assert_eq!(self.read_all(topic_name).await, all_as_stored(&all[gone..], bounds.first.0));
    }
}

async fn a_rule_without_limits_keeps_everything(store: TestStore) {
    let all = store.fill_aged("a", &[1_000_000_000_000, 5, 0]).await;
    store.retain("a", Retention::default()).await;
    store.check_retained("a", &all, 1).await;
}

async fn events_within_the_maximum_age_stay(store: TestStore) {
    let all = store.fill_aged("a", &[5000, 1001, 1000, 999, 0]).await;
    store.retain("a", rule(Some(1000), None, 1)).await;
    store.check_retained("a", &all, 3).await;
    store.clock.advance_ms(1);
    store.retain("a", rule(Some(1000), None, 1)).await;
    store.check_retained("a", &all, 4).await;
    store.retain("a", rule(Some(u64::MAX), None, 1)).await;
    store.check_retained("a", &all, 4).await;
}

async fn an_old_event_after_a_young_one_leaves_no_gap(store: TestStore) {
    let all = store.fill_aged("a", &[5000, 10, 5000, 5000, 10]).await;
    store.retain("a", rule(Some(1000), None, 1)).await;
    store.check_retained("a", &all, 2).await;
}

async fn events_within_the_maximum_size_stay(store: TestStore) {
    let mut all = store.fill("a", 50).await;
    let half = store.bounds("a").await.bytes;
    all.extend(store.fill("a", 50).await);
    let whole = store.bounds("a").await.bytes;
    store.retain("a", rule(None, Some(whole), 1)).await;
    store.check_retained("a", &all, 1).await;
    // The newer half may be slightly larger: its numbers have more digits.
    store.retain("a", rule(None, Some(half), 1)).await;
    store.check_retained("a", &all, 56).await;
    // Nothing has to stay, but whatever does must be intact.
    store.retain("a", rule(None, Some(0), 1)).await;
    store.check_retained("a", &all, 101).await;
}

async fn either_limit_may_drop_events_but_only_the_oldest(store: TestStore) {
    let mut all = Vec::new();
    for _ in 0..20 {
        let events: Vec<Event> = (0..10)
            .map(|_| Event {
                payload: payload(&format!("\"{}\"", "x".repeat(2000))),
                ..store.event("a")
            })
            .collect();
        store.append(&events).await;
        all.extend(events);
        store.clock.advance_ms(100);
    }
    store.retain("a", rule(Some(1000), Some(u64::MAX), 1)).await;
    store.check_retained("a", &all, 101).await;
    let bytes = store.bounds("a").await.bytes;
    store.retain("a", rule(Some(1_000_000), Some(bytes / 2), 1)).await;
    store.check_retained("a", &all, 155).await;
}

async fn the_remaining_bounds_are_returned(store: TestStore) {
    store.fill_aged("a", &[5000, 5000, 10]).await;
    let left = store.retain("a", rule(Some(1000), None, 1)).await;
    assert_eq!(ends(left), ends(store.bounds("a").await));
    assert_eq!(left.next, Seq(4));
}

async fn a_second_call_changes_nothing(store: TestStore) {
    store.fill_aged("a", &[5000, 5000, 10]).await;
    let once = store.retain("a", rule(Some(1000), None, 1)).await;
    let twice = store.retain("a", rule(Some(1000), None, 1)).await;
    assert_eq!(ends(twice), ends(once));
}

async fn numbering_continues_after_retention(store: TestStore) {
    store.fill_aged("a", &[5000, 5000, 5000]).await;
    store.retain("a", rule(Some(1000), Some(0), 1)).await;
    assert_eq!(store.bounds("a").await.last(), Seq(3));
    assert_eq!(store.append(&[store.event("a")]).await, stored_at([4]));
    assert_eq!(store.topic_names().await, ["a"]);
}

async fn only_ids_of_retained_events_are_known(store: TestStore) {
    let all = store.fill_aged("a", &[5000, 5000, 5000, 10]).await;
    let first = store.retain("a", rule(Some(1000), None, 1)).await.first.0;
    let mut next = 5;
    for (seq, event) in (1..).zip(&all) {
        let expected = match seq < first {
            true => {
                next += 1;
                stored_at([next - 1])[0]
            }
            false => found_at(seq),
        };
        assert_eq!(store.append(std::slice::from_ref(event)).await, [expected]);
    }
}

async fn an_unknown_topic_is_not_created(store: TestStore) {
    let left = store.retain("a", rule(Some(0), Some(0), 3)).await;
    assert_eq!(left, Bounds::EMPTY);
    assert_eq!(store.topic_names().await, Vec::<String>::new());
    assert_eq!(store.append(&[store.event("a")]).await, stored_at([1]));
}

async fn check_refused(store: &TestStore, topic_name: &str, offered: u64, applied: u64) {
    let rule = rule(Some(0), Some(0), offered);
    let answer = store.engine().retain(&topic(topic_name), &rule).await;
    let expected = (topic(topic_name), offered, applied);
    assert!(
        matches!(
            &answer,
            Err(CommitError::StaleRule { topic, offered, applied })
                if (topic, offered, applied) == (&expected.0, &expected.1, &expected.2)
        ),
        "expected {expected:?}: {answer:?}"
    );
}

async fn an_older_rule_is_refused(store: TestStore) {
    let all = store.fill_aged("a", &[5000, 5000, 10]).await;
    store.retain("a", rule(Some(1000), None, 7)).await;
    store.clock.advance_ms(10_000);
    let before = ends(store.bounds("a").await);
    check_refused(&store, "a", 6, 7).await;
    check_refused(&store, "a", 0, 7).await;
    assert_eq!(ends(store.bounds("a").await), before);
    store.check_retained("a", &all, 3).await;
    store.retain("a", rule(None, None, 8)).await;
    check_refused(&store, "a", 7, 8).await;
}

async fn an_older_rule_is_refused_even_if_the_newer_one_dropped_nothing(store: TestStore) {
    let all = store.fill_aged("a", &[5000, 10]).await;
    store.retain("a", rule(None, None, 2)).await;
    check_refused(&store, "a", 1, 2).await;
    assert_eq!(stored_ids(&store.read_all("a").await), ids_of(&all));

    store.retain("empty", rule(None, None, 2)).await;
    let later = store.fill_aged("empty", &[5000]).await;
    check_refused(&store, "empty", 1, 2).await;
    store.check_retained("empty", &later, 1).await;
}

async fn the_same_revision_may_be_applied_again(store: TestStore) {
    let all = store.fill_aged("a", &[900, 10]).await;
    for _ in 0..3 {
        store.retain("a", rule(Some(1000), None, 5)).await;
        store.check_retained("a", &all, 1).await;
    }
}

async fn each_topic_has_its_own_revision(store: TestStore) {
    store.fill("a", 1).await;
    store.fill("b", 1).await;
    store.retain("a", rule(None, None, 9)).await;
    store.retain("b", rule(None, None, 1)).await;
    check_refused(&store, "a", 8, 9).await;
    check_refused(&store, "b", 0, 1).await;
}
