//! Pages: where they start, and how much they return.

use prombus_proto::Event;

use super::case::{Case, cases};
use super::test_store::{EVERYTHING, TestStore, all_as_stored, as_stored, ends, payload, seqs_of};
use crate::ReadBudget;

pub(super) fn cases() -> Vec<Case> {
    cases![
        a_page_starts_at_the_requested_position,
        reading_from_zero_starts_at_the_first_event,
        reading_below_the_first_retained_event_starts_with_it,
        reading_above_the_last_event_returns_nothing,
        the_event_budget_is_used_up_but_not_exceeded,
        the_byte_budget_is_used_up_but_not_exceeded,
        the_tighter_budget_applies,
        a_page_has_at_least_one_event_whatever_the_budget,
        consecutive_pages_have_no_gap_or_overlap,
        reading_changes_nothing,
    ]
}

async fn a_page_starts_at_the_requested_position(store: TestStore) {
    let events = store.fill("a", 20).await;
    for from in 1..=20u64 {
        let skipped = usize::try_from(from - 1).unwrap();
        assert_eq!(
            store.read("a", from, EVERYTHING).await,
            all_as_stored(&events[skipped..], from)
        );
    }
}

async fn reading_from_zero_starts_at_the_first_event(store: TestStore) {
    store.fill("a", 2).await;
    assert_eq!(seqs_of(&store.read("a", 0, EVERYTHING).await), [1, 2]);
}

async fn reading_below_the_first_retained_event_starts_with_it(store: TestStore) {
    store.fill("a", 6).await;
    store.trim("a", 4).await;
    for from in 0..=4 {
        let page = store.read("a", from, ReadBudget::of_events(2)).await;
        assert_eq!(seqs_of(&page), [4, 5], "from {from}");
    }
}

async fn reading_above_the_last_event_returns_nothing(store: TestStore) {
    store.fill("a", 3).await;
    for from in [4, 5, 1000, u64::MAX] {
        assert_eq!(store.read("a", from, EVERYTHING).await, []);
    }
    store.trim("a", 4).await;
    for from in [0, 1, 3, 4, 5] {
        assert_eq!(store.read("a", from, EVERYTHING).await, []);
    }
}

async fn the_event_budget_is_used_up_but_not_exceeded(store: TestStore) {
    store.fill("a", 10).await;
    for max in 1..=12 {
        let page = store.read("a", 3, ReadBudget::of_events(max)).await;
        assert_eq!(page.len(), max.min(8));
    }
}

async fn the_byte_budget_is_used_up_but_not_exceeded(store: TestStore) {
    let sizes = [10, 500, 20, 20, 3000, 1, 1, 1, 700];
    let events: Vec<Event> = sizes
        .iter()
        .map(|size| Event {
            payload: payload(&format!("\"{}\"", "x".repeat(*size))),
            ..store.event("a")
        })
        .collect();
    store.append(&events).await;
    let stored = all_as_stored(&events, 1);
    for from in 1..=sizes.len() {
        let rest = &stored[from - 1..];
        for count in 1..=rest.len() {
            let fits: usize = rest[..count].iter().map(|event| event.json.len()).sum();
            // With one byte less, the last event no longer fits, unless it is the only one.
            for (bytes, expected) in [(fits, count), (fits - 1, (count - 1).max(1))] {
                let page = store.read("a", from as u64, ReadBudget::of_bytes(bytes)).await;
                assert_eq!(page, rest[..expected], "from {from}, {bytes} bytes");
            }
        }
    }
}

async fn the_tighter_budget_applies(store: TestStore) {
    let events = store.fill("a", 10).await;
    let three = all_as_stored(&events[..3], 1).iter().map(|event| event.json.len()).sum();
    let budget = |events, bytes| ReadBudget { events, bytes };
    assert_eq!(store.read("a", 1, budget(5, three)).await.len(), 3);
    assert_eq!(store.read("a", 1, budget(2, three)).await.len(), 2);
}

async fn a_page_has_at_least_one_event_whatever_the_budget(store: TestStore) {
    let large =
        Event { payload: payload(&format!("\"{}\"", "x".repeat(100_000))), ..store.event("a") };
    store.append(&[large.clone(), store.event("a")]).await;
    for budget in [
        ReadBudget { events: 0, bytes: 0 },
        ReadBudget::of_bytes(0),
        ReadBudget::of_bytes(1),
        ReadBudget::of_events(0),
        ReadBudget::of_events(1),
    ] {
        assert_eq!(store.read("a", 1, budget).await, [as_stored(&large, 1)], "{budget:?}");
    }
}

async fn consecutive_pages_have_no_gap_or_overlap(store: TestStore) {
    let mut events = Vec::new();
    for _ in 0..10 {
        events.extend(store.fill("a", 17).await);
    }
    for budget in [
        ReadBudget::of_events(1),
        ReadBudget::of_events(16),
        ReadBudget::of_events(169),
        ReadBudget::of_bytes(1000),
    ] {
        let mut joined = Vec::new();
        let mut from = 1;
        loop {
            let page = store.read("a", from, budget).await;
            let Some(last) = page.last() else { break };
            from = last.seq.0 + 1;
            joined.extend(page);
            assert!(joined.len() <= events.len(), "a page was returned twice");
        }
        assert_eq!(joined, all_as_stored(&events, 1), "{budget:?}");
    }
}

async fn reading_changes_nothing(store: TestStore) {
    store.fill("a", 5).await;
    let before = (ends(store.bounds("a").await), store.read_all("a").await);
    store.read("a", 3, ReadBudget::of_events(1)).await;
    store.read("a", 99, EVERYTHING).await;
    assert_eq!((ends(store.bounds("a").await), store.read_all("a").await), before);
}
