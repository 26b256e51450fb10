//! What has expired is absent, for everybody.

use prombus_proto::{Clock, Timestamp};

use super::case::{Case, cases};
use super::store::{Store, delete_if, of_state, put, put_if, put_until};
use crate::{CommitError, Conflict, Expect, StateOp, Version};

pub(super) fn cases() -> Vec<Case> {
    cases![
        a_value_is_there_until_its_end,
        what_has_expired_is_not_scanned,
        what_has_expired_does_not_fill_a_page,
        what_has_expired_is_absent_to_an_expectation,
        what_has_expired_has_no_version_to_expect,
        what_has_not_expired_is_there_to_an_expectation,
        a_value_that_expires_in_the_past_is_absent_at_once,
        a_batch_sees_its_own_expired_values_as_absent,
        a_new_put_decides_anew_when_it_ends,
        a_value_without_end_stays,
    ]
}

const LIFE_MS: u64 = 1000;

impl Store {
    async fn put_for_life(&self, name: &str) -> Version {
        let end = self.clock.now().plus_ms(LIFE_MS);
        self.commit(of_state(vec![put_until(name, "v", end)])).await.version
    }
}

fn is_conflict<T>(answer: &Result<T, CommitError>, due: Option<Version>) -> bool {
    matches!(
        answer,
        Err(CommitError::Conflict(Conflict::State { actual, .. })) if *actual == due
    )
}

async fn a_value_is_there_until_its_end(store: Store) {
    let end = store.clock.now().plus_ms(LIFE_MS);
    store.put_for_life("k").await;
    assert_eq!(store.get("k").await.unwrap().expires_at, Some(end));
    store.clock.advance_ms(LIFE_MS - 1);
    assert_eq!(store.value("k").await.unwrap(), "v");
    store.clock.advance_ms(1);
    assert_eq!(store.get("k").await, None);
    store.clock.advance_ms(1);
    assert_eq!(store.get("k").await, None);
}

async fn what_has_expired_is_not_scanned(store: Store) {
    store.put_for_life("a").await;
    store.put("b", "stays").await;
    store.put_for_life("c").await;
    assert_eq!(store.scan(b"", None, 10).await, [b"a", b"b", b"c"]);
    store.clock.advance_ms(LIFE_MS);
    assert_eq!(store.scan(b"", None, 10).await, [b"b"]);
}

async fn what_has_expired_does_not_fill_a_page(store: Store) {
    for name in ["a", "b", "c", "e"] {
        store.put_for_life(name).await;
    }
    store.put("d", "stays").await;
    store.put("f", "stays").await;
    store.clock.advance_ms(LIFE_MS);
    assert_eq!(store.scan(b"", None, 2).await, [b"d", b"f"]);
}

async fn what_has_expired_is_absent_to_an_expectation(store: Store) {
    store.put_for_life("k").await;
    store.put_for_life("j").await;
    store.clock.advance_ms(LIFE_MS);
    store
        .commit(of_state(vec![put_if("k", "new", Expect::Absent), delete_if("j", Expect::Absent)]))
        .await;
    assert_eq!(store.value("k").await.unwrap(), "new");
    assert_eq!(store.get("k").await.unwrap().expires_at, None);
}

async fn what_has_expired_has_no_version_to_expect(store: Store) {
    let version = store.put_for_life("k").await;
    store.clock.advance_ms(LIFE_MS);
    for op in
        [put_if("k", "new", Expect::Version(version)), delete_if("k", Expect::Version(version))]
    {
        let answer = store.try_commit(of_state(vec![op])).await;
        assert!(is_conflict(&answer, None), "{answer:?}");
    }
}

async fn what_has_not_expired_is_there_to_an_expectation(store: Store) {
    let version = store.put_for_life("k").await;
    store.clock.advance_ms(LIFE_MS - 1);
    let op = put_if("k", "new", Expect::Absent);
    let answer = store.try_commit(of_state(vec![op])).await;
    assert!(is_conflict(&answer, Some(version)), "{answer:?}");
    store.commit(of_state(vec![put_if("k", "new", Expect::Version(version))])).await;
}

async fn a_value_that_expires_in_the_past_is_absent_at_once(store: Store) {
    let now = store.clock.now();
    for end in [now, Timestamp(now.0 - 1), Timestamp(0)] {
        store.put("k", "before").await;
        store.commit(of_state(vec![put_until("k", "v", end)])).await;
        assert_eq!(store.get("k").await, None);
        assert_eq!(store.scan(b"", None, 10).await.len(), 0);
        store.commit(of_state(vec![delete_if("k", Expect::Absent)])).await;
    }
}

async fn a_batch_sees_its_own_expired_values_as_absent(store: Store) {
    let now = store.clock.now();
    let ops = |last: StateOp| of_state(vec![put("k", "1"), put_until("k", "2", now), last]);
    store.commit(ops(put_if("k", "3", Expect::Absent))).await;
    assert_eq!(store.value("k").await.unwrap(), "3");
}

async fn a_new_put_decides_anew_when_it_ends(store: Store) {
    store.put_for_life("stays").await;
    store.put_for_life("longer").await;
    store.put("shorter", "v").await;
    store.put("stays", "v").await;
    store.clock.advance_ms(1);
    store.put_for_life("longer").await;
    store.put_for_life("shorter").await;
    store.clock.advance_ms(LIFE_MS - 1);
    assert_eq!(store.scan(b"", None, 10).await, [&b"longer"[..], b"shorter", b"stays"]);
    store.clock.advance_ms(1);
    assert_eq!(store.scan(b"", None, 10).await, [b"stays"]);
}

async fn a_value_without_end_stays(store: Store) {
    store.put("k", "v").await;
    let end_of_time = put_until("j", "v", Timestamp(u64::MAX));
    store.commit(of_state(vec![end_of_time])).await;
    store.clock.advance_ms(1000 * 365 * 86_400_000);
    assert_eq!(store.scan(b"", None, 10).await, [b"j", b"k"]);
}
