//! The age of an event counts from when it was stored, whatever its `ts`.

use prombus_proto::{Clock, Event, Timestamp};

use super::case::{Case, cases};
use super::test_store::{TestStore, all_as_stored, payload, topic};
use crate::{Bounds, Retention};

pub(super) fn cases() -> Vec<Case> {
    cases![
        an_event_from_1970_is_kept_for_the_maximum_age,
        a_time_in_the_future_keeps_no_other_event,
        an_event_is_as_old_after_a_restart,
    ]
}

const HOUR_MS: u64 = 3_600_000;

impl TestStore {
    async fn keep_an_hour(&self, topic_name: &str) -> Bounds {
        let rule = Retention { max_age_ms: Some(HOUR_MS), ..Retention::default() };
        self.engine().retain(&topic(topic_name), &rule).await.unwrap()
    }

    fn large_event(&self, topic_name: &str, ts: Timestamp) -> Event {
        let payload = payload(&format!("\"{}\"", "x".repeat(2000)));
        Event { ts, payload, ..self.event(topic_name) }
    }
}

async fn an_event_from_1970_is_kept_for_the_maximum_age(store: TestStore) {
    let now = store.clock.now().0;
    let all = store.fill_at("a", &[0, 1, now - 2 * HOUR_MS, 0]).await;
    for _ in 0..2 {
        store.keep_an_hour("a").await;
        assert_eq!(store.read_all("a").await, all_as_stored(&all, 1));
        store.clock.advance_ms(HOUR_MS / 2);
    }
    store.keep_an_hour("a").await;
    assert_eq!(store.read_all("a").await, all_as_stored(&all, 1));
}

/// An engine may keep more than the rule asks for. So what it keeps of the topic is compared with what it
/// keeps of another one, which differs in nothing but one timestamp.
async fn a_time_in_the_future_keeps_no_other_event(store: TestStore) {
    let now = store.clock.now();
    let mut is_first = true;
    for _ in 0..20 {
        let mut events = Vec::new();
        for _ in 0..10 {
            let ts = if is_first { now.plus_ms(20 * HOUR_MS) } else { now };
            is_first = false;
            events.extend([store.large_event("a", ts), store.large_event("same", now)]);
        }
        store.append(&events).await;
        store.clock.advance_ms(1000);
    }
    store.clock.advance_ms(2 * HOUR_MS);
    store.append(&[store.event("a"), store.event("same")]).await;
    let (left, expected) = (store.keep_an_hour("a").await, store.keep_an_hour("same").await);
    assert_eq!((left.first, left.next), (expected.first, expected.next));
}

async fn an_event_is_as_old_after_a_restart(mut store: TestStore) {
    if !store.engine().capabilities().survives_restart {
        return;
    }
    let all = store.fill_at("a", &[0, 0, 0]).await;
    store.clock.advance_ms(HOUR_MS / 2);
    store.restart().await;
    store.keep_an_hour("a").await;
    assert_eq!(store.read_all("a").await, all_as_stored(&all, 1));
}
