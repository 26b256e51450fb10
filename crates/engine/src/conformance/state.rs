//! The keyed state: values, versions and expectations.

use bytes::Bytes;

use super::case::{Case, cases};
use super::test_store::{TestStore, delete, delete_if, key, of_events, of_state, put, put_if};
use crate::{CommitError, Conflict, Expect, StateEntry, StateKey, StateOp, Version};

pub(super) fn cases() -> Vec<Case> {
    cases![
        a_put_value_is_returned,
        a_key_that_was_never_put_is_absent,
        get_many_returns_what_get_returns,
        the_last_put_wins,
        a_deleted_key_is_absent,
        deleting_an_absent_key_succeeds,
        an_empty_value_is_a_value,
        keys_and_values_may_contain_any_byte,
        versions_increase_with_every_commit,
        all_values_of_a_commit_have_its_version,
        a_key_put_again_after_a_delete_has_a_new_version,
        operations_apply_in_order,
        expect_absent_fails_if_the_key_has_a_value,
        expect_version_fails_for_any_other_version,
        deletes_check_their_expectation,
        an_expectation_sees_earlier_operations_of_its_batch,
        an_expectation_only_looks_at_its_own_key,
    ]
}

async fn check_conflict(store: &TestStore, ops: Vec<StateOp>, name: &str, actual: Option<Version>) {
    let answer = store.try_commit(of_state(ops)).await;
    let expected = Conflict::State { key: key(name), actual };
    assert!(
        matches!(&answer, Err(CommitError::Conflict(conflict)) if *conflict == expected),
        "expected {expected:?}: {answer:?}"
    );
}

/// A conflict within a batch names a version that exists only in the refused batch, so the contract
/// only promises the kind of error.
async fn check_refused(store: &TestStore, ops: Vec<StateOp>) {
    let answer = store.try_commit(of_state(ops)).await;
    assert!(
        matches!(
            &answer,
            Err(CommitError::Conflict(Conflict::State { key: of, .. })) if *of == key("k")
        ),
        "{answer:?}"
    );
}

async fn get_many_returns_what_get_returns(store: TestStore) {
    for n in 0..300 {
        store.put(&format!("k{n}"), &format!("v{n}")).await;
    }
    store.commit(of_state(vec![delete("k7")])).await;
    let names: Vec<_> = (0..400).rev().map(|n| format!("k{n}")).collect();
    let keys: Vec<_> = names.iter().map(|name| key(name)).collect();
    let mut each = Vec::new();
    for name in &names {
        each.push(store.get(name).await);
    }
    assert_eq!(each.iter().flatten().count(), 299);
    assert_eq!(store.engine().get_many(&keys).await.unwrap(), each);
    assert_eq!(store.engine().get_many(&[]).await.unwrap(), vec![]);
}

async fn a_put_value_is_returned(store: TestStore) {
    let version = store.put("k", "v").await;
    assert_eq!(
        store.get("k").await,
        Some(StateEntry {
            key: key("k"),
            value: Bytes::from_static(b"v"),
            version,
            expires_at: None,
        })
    );
}

async fn a_key_that_was_never_put_is_absent(store: TestStore) {
    store.put("key", "v").await;
    for absent in ["k", "ke", "keys", "key\0", "x"] {
        assert_eq!(store.get(absent).await, None, "{absent}");
    }
}

async fn the_last_put_wins(store: TestStore) {
    store.put("k", "a long first value").await;
    let version = store.put("k", "2").await;
    let entry = store.get("k").await.unwrap();
    assert_eq!((entry.value, entry.version), ("2".into(), version));
}

async fn a_deleted_key_is_absent(store: TestStore) {
    store.put("k", "v").await;
    store.put("other", "v").await;
    store.commit(of_state(vec![delete("k")])).await;
    assert_eq!(store.get("k").await, None);
    assert_eq!(store.scan(b"", None, 10).await, [b"other"]);
}

async fn deleting_an_absent_key_succeeds(store: TestStore) {
    store.commit(of_state(vec![delete("k"), delete("k")])).await;
    store.commit(of_state(vec![delete_if("k", Expect::Absent)])).await;
    assert_eq!(store.get("k").await, None);
}

async fn an_empty_value_is_a_value(store: TestStore) {
    let version = store.put("k", "").await;
    assert_eq!(store.value("k").await.unwrap(), "");
    check_conflict(&store, vec![put_if("k", "x", Expect::Absent)], "k", Some(version)).await;
}

async fn keys_and_values_may_contain_any_byte(store: TestStore) {
    let every_byte: Bytes = (0..=255).collect();
    let keys: Vec<StateKey> =
        (0..=255u8).map(|byte| StateKey::new(vec![byte, 0, 255, byte]).unwrap()).collect();
    let puts = keys.iter().map(|key| StateOp::Put {
        key: key.clone(),
        value: every_byte.clone(),
        expires_at: None,
        expect: Expect::Absent,
    });
    store.commit(of_state(puts.collect())).await;
    for key in &keys {
        let entry = store.engine().get(key).await.unwrap().unwrap();
        assert_eq!((&entry.key, &entry.value), (key, &every_byte));
    }
    let found = store.engine().scan(b"", None, 1000).await.unwrap();
    assert!(found.iter().map(|entry| &entry.key).eq(&keys));
}

async fn versions_increase_with_every_commit(store: TestStore) {
    let mut last = None;
    for round in 0..10 {
        let batch = match round % 3 {
            0 => of_state(vec![put("k", "v")]),
            1 => of_events(&[store.event("a")]),
            _ => of_state(vec![delete("k")]),
        };
        let version = store.commit(batch).await.version;
        assert!(Some(version) > last, "{last:?} {version:?}");
        last = Some(version);
    }
}

async fn all_values_of_a_commit_have_its_version(store: TestStore) {
    let before = store.put("other", "v").await;
    let version =
        store.commit(of_state(vec![put("a", "1"), put("b", "2"), put("a", "3")])).await.version;
    for name in ["a", "b"] {
        assert_eq!(store.get(name).await.unwrap().version, version);
    }
    assert_eq!(store.get("other").await.unwrap().version, before);
}

async fn a_key_put_again_after_a_delete_has_a_new_version(store: TestStore) {
    let first = store.put("k", "v").await;
    store.commit(of_state(vec![delete("k")])).await;
    let second = store.put("k", "v").await;
    assert!(second > first);
    check_conflict(&store, vec![put_if("k", "x", Expect::Version(first))], "k", Some(second)).await;
}

async fn operations_apply_in_order(store: TestStore) {
    store
        .commit(of_state(vec![
            put("a", "1"),
            put("a", "2"),
            put("b", "1"),
            delete("b"),
            delete("c"),
            put("c", "1"),
        ]))
        .await;
    assert_eq!(store.value("a").await.unwrap(), "2");
    assert_eq!(store.get("b").await, None);
    assert_eq!(store.value("c").await.unwrap(), "1");
}

async fn expect_absent_fails_if_the_key_has_a_value(store: TestStore) {
    let put_new = || vec![put_if("k", "v", Expect::Absent)];
    let version = store.commit(of_state(put_new())).await.version;
    check_conflict(&store, put_new(), "k", Some(version)).await;
    store.commit(of_state(vec![delete("k")])).await;
    store.commit(of_state(put_new())).await;
}

async fn expect_version_fails_for_any_other_version(store: TestStore) {
    check_conflict(&store, vec![put_if("k", "v", Expect::Version(Version(u64::MAX)))], "k", None)
        .await;
    let first = store.put("k", "1").await;
    let second =
        store.commit(of_state(vec![put_if("k", "2", Expect::Version(first))])).await.version;
    check_conflict(&store, vec![put_if("k", "3", Expect::Version(first))], "k", Some(second)).await;
    assert_eq!(store.value("k").await.unwrap(), "2");
}

async fn deletes_check_their_expectation(store: TestStore) {
    let first = store.put("k", "1").await;
    let second = store.put("k", "2").await;
    for wrong in [Expect::Absent, Expect::Version(first)] {
        check_conflict(&store, vec![delete_if("k", wrong)], "k", Some(second)).await;
    }
    store.commit(of_state(vec![delete_if("k", Expect::Version(second))])).await;
    assert_eq!(store.get("k").await, None);
    check_conflict(&store, vec![delete_if("k", Expect::Version(second))], "k", None).await;
}

async fn an_expectation_sees_earlier_operations_of_its_batch(store: TestStore) {
    let old = store.put("k", "old").await;
    check_refused(&store, vec![put("k", "1"), put_if("k", "2", Expect::Version(old))]).await;
    check_refused(&store, vec![delete("k"), put_if("k", "2", Expect::Version(old))]).await;
    check_refused(&store, vec![delete("k"), put("k", "1"), put_if("k", "2", Expect::Absent)]).await;
    assert_eq!(store.get("k").await.unwrap().version, old);

    store
        .commit(of_state(vec![
            delete_if("k", Expect::Version(old)),
            put_if("k", "new", Expect::Absent),
        ]))
        .await;
    assert_eq!(store.value("k").await.unwrap(), "new");
}

async fn an_expectation_only_looks_at_its_own_key(store: TestStore) {
    store
        .commit(of_state(vec![
            put_if("k", "1", Expect::Absent),
            put_if("k1", "2", Expect::Absent),
            put_if("j", "3", Expect::Absent),
        ]))
        .await;
    assert_eq!(store.scan(b"", None, 10).await, [&b"j"[..], b"k", b"k1"]);
}
