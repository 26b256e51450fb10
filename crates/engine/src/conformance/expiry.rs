//! An expired value is absent, for reads and for expectations.

use prombus_proto::{Clock, Timestamp};

use super::case::{Case, cases};
use super::test_store::{TestStore, delete_if, of_state, put, put_if, put_until};
use crate::{CommitError, Conflict, Expect, StateOp, Version};

pub(super) fn cases() -> Vec<Case> {
    cases![
        a_value_is_readable_until_it_expires,
        a_scan_skips_expired_values,
        expired_values_do_not_count_against_the_scan_limit,
        expect_absent_holds_for_an_expired_value,
        expect_version_fails_for_an_expired_value,
        expect_version_holds_until_the_value_expires,
        a_value_with_a_past_expiry_is_absent_at_once,
        an_expectation_treats_expired_values_of_its_own_batch_as_absent,
        a_put_replaces_the_expiry,
        a_value_without_expiry_stays,
    ]
}

const LIFE_MS: u64 = 1000;

impl TestStore {
    async fn put_with_expiry(&self, name: &str) -> Version {
        let end = self.clock.now().plus_ms(LIFE_MS);
        self.commit(of_state(vec![put_until(name, "v", end)])).await.version
    }
}

fn is_conflict<T>(answer: &Result<T, CommitError>, expected: Option<Version>) -> bool {
    matches!(
        answer,
        Err(CommitError::Conflict(Conflict::State { actual, .. })) if *actual == expected
    )
}

async fn a_value_is_readable_until_it_expires(store: TestStore) {
    let end = store.clock.now().plus_ms(LIFE_MS);
    store.put_with_expiry("k").await;
    assert_eq!(store.get("k").await.unwrap().expires_at, Some(end));
    store.clock.advance_ms(LIFE_MS - 1);
    assert_eq!(store.value("k").await.unwrap(), "v");
    store.clock.advance_ms(1);
    assert_eq!(store.get("k").await, None);
    store.clock.advance_ms(1);
    assert_eq!(store.get("k").await, None);
}

async fn a_scan_skips_expired_values(store: TestStore) {
    store.put_with_expiry("a").await;
    store.put("b", "stays").await;
    store.put_with_expiry("c").await;
    assert_eq!(store.scan(b"", None, 10).await, [b"a", b"b", b"c"]);
    store.clock.advance_ms(LIFE_MS);
    assert_eq!(store.scan(b"", None, 10).await, [b"b"]);
}

async fn expired_values_do_not_count_against_the_scan_limit(store: TestStore) {
    for name in ["a", "b", "c", "e"] {
        store.put_with_expiry(name).await;
    }
    store.put("d", "stays").await;
    store.put("f", "stays").await;
    store.clock.advance_ms(LIFE_MS);
    assert_eq!(store.scan(b"", None, 2).await, [b"d", b"f"]);
}

async fn expect_absent_holds_for_an_expired_value(store: TestStore) {
    store.put_with_expiry("k").await;
    store.put_with_expiry("j").await;
    store.clock.advance_ms(LIFE_MS);
    store
        .commit(of_state(vec![put_if("k", "new", Expect::Absent), delete_if("j", Expect::Absent)]))
        .await;
    assert_eq!(store.value("k").await.unwrap(), "new");
    assert_eq!(store.get("k").await.unwrap().expires_at, None);
}

async fn expect_version_fails_for_an_expired_value(store: TestStore) {
    let version = store.put_with_expiry("k").await;
    store.clock.advance_ms(LIFE_MS);
    for op in
        [put_if("k", "new", Expect::Version(version)), delete_if("k", Expect::Version(version))]
    {
        let answer = store.try_commit(of_state(vec![op])).await;
        assert!(is_conflict(&answer, None), "{answer:?}");
    }
}

async fn expect_version_holds_until_the_value_expires(store: TestStore) {
    let version = store.put_with_expiry("k").await;
    store.clock.advance_ms(LIFE_MS - 1);
    let op = put_if("k", "new", Expect::Absent);
    let answer = store.try_commit(of_state(vec![op])).await;
    assert!(is_conflict(&answer, Some(version)), "{answer:?}");
    store.commit(of_state(vec![put_if("k", "new", Expect::Version(version))])).await;
}

async fn a_value_with_a_past_expiry_is_absent_at_once(store: TestStore) {
    let now = store.clock.now();
    for end in [now, Timestamp(now.0 - 1), Timestamp(0)] {
        store.put("k", "before").await;
        store.commit(of_state(vec![put_until("k", "v", end)])).await;
        assert_eq!(store.get("k").await, None);
        assert_eq!(store.scan(b"", None, 10).await.len(), 0);
        store.commit(of_state(vec![delete_if("k", Expect::Absent)])).await;
    }
}

async fn an_expectation_treats_expired_values_of_its_own_batch_as_absent(store: TestStore) {
    let now = store.clock.now();
    let ops = |last: StateOp| of_state(vec![put("k", "1"), put_until("k", "2", now), last]);
    store.commit(ops(put_if("k", "3", Expect::Absent))).await;
    assert_eq!(store.value("k").await.unwrap(), "3");
}

async fn a_put_replaces_the_expiry(store: TestStore) {
    store.put_with_expiry("stays").await;
    store.put_with_expiry("longer").await;
    store.put("shorter", "v").await;
    store.put("stays", "v").await;
    store.clock.advance_ms(1);
    store.put_with_expiry("longer").await;
    store.put_with_expiry("shorter").await;
    store.clock.advance_ms(LIFE_MS - 1);
    assert_eq!(store.scan(b"", None, 10).await, [&b"longer"[..], b"shorter", b"stays"]);
    store.clock.advance_ms(1);
    assert_eq!(store.scan(b"", None, 10).await, [b"stays"]);
}

async fn a_value_without_expiry_stays(store: TestStore) {
    store.put("k", "v").await;
    let end_of_time = put_until("j", "v", Timestamp(u64::MAX));
    store.commit(of_state(vec![end_of_time])).await;
    store.clock.advance_ms(1000 * 365 * 86_400_000);
    assert_eq!(store.scan(b"", None, 10).await, [b"j", b"k"]);
}
