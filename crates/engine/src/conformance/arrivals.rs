//! When events were stored.

use prombus_proto::{Clock, Seq, Timestamp};

use super::case::{Case, cases};
use super::test_store::{TestStore, topic};
use crate::Arrival;

pub(super) fn cases() -> Vec<Case> {
    cases![
        the_arrival_is_when_the_bus_stored_an_event,
        the_arrival_survives_a_restart,
        only_retained_events_have_an_arrival,
    ]
}

const MINUTE_MS: u64 = 60_000;

impl TestStore {
    async fn arrival(&self, topic_name: &str, seq: u64) -> Option<Arrival> {
        self.engine().arrival(&topic(topic_name), Seq(seq)).await.unwrap()
    }

    /// Stores events whose `ts` say nothing, a minute apart. Returns when each was stored.
    async fn fill_over_minutes(&self) -> Vec<Timestamp> {
        let mut times = Vec::new();
        for ts in [0, u64::MAX >> 1, 1, 2, 0] {
            times.push(self.clock.now());
            self.fill_at("a", &[ts]).await;
            self.clock.advance_ms(MINUTE_MS);
        }
        times
    }

    async fn has_arrivals(&self, times: &[Timestamp]) {
        for (seq, time) in (1..).zip(times) {
            let arrival = self.arrival("a", seq).await.unwrap();
            assert_eq!(arrival.closest_to(*time), *time, "{seq}: {arrival:?}");
            assert!(arrival.latest() < self.clock.now(), "{seq}: {arrival:?}");
        }
    }
}

async fn the_arrival_is_when_the_bus_stored_an_event(store: TestStore) {
    let times = store.fill_over_minutes().await;
    store.has_arrivals(&times).await;
    // Another topic and a duplicate change nothing.
    store.fill("b", 3).await;
    let event = store.event("a");
    let stored_at = store.clock.now();
    store.append(std::slice::from_ref(&event)).await;
    store.clock.advance_ms(MINUTE_MS);
    store.append(&[event]).await;
    store.has_arrivals(&[&times[..], &[stored_at]].concat()).await;
}

async fn the_arrival_survives_a_restart(mut store: TestStore) {
    if !store.engine().capabilities().survives_restart {
        return;
    }
    let mut times = Vec::new();
    for _ in 0..3 {
        times.extend(store.fill_over_minutes().await);
        store.restart().await;
        store.has_arrivals(&times).await;
    }
}

async fn only_retained_events_have_an_arrival(store: TestStore) {
    assert_eq!(store.arrival("a", 1).await, None);
    store.fill("a", 4).await;
    assert!(store.arrival("a", 1).await.is_some());
    store.trim("a", 3).await;
    let mut known = Vec::new();
    for seq in 0..7 {
        known.push(store.arrival("a", seq).await.is_some());
    }
    assert_eq!(known, [false, false, false, true, true, false, false]);
}
