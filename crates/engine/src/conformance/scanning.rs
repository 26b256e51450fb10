//! Scans of the keyed state by prefix, page by page.

use bytes::Bytes;

use super::case::{Case, cases};
use super::test_store::{TestStore, delete, key, of_state, put};
use crate::{Expect, StateKey, StateOp};

pub(super) fn cases() -> Vec<Case> {
    cases![
        entries_are_complete_and_in_byte_order,
        only_keys_with_the_prefix_are_returned,
        a_prefix_may_contain_any_byte,
        the_empty_prefix_matches_every_key,
        consecutive_pages_have_no_gap_or_overlap,
        after_need_not_exist,
        after_may_lie_outside_the_prefix,
        a_limit_of_zero_returns_nothing,
        fewer_entries_than_the_limit_end_the_scan,
        deleted_keys_do_not_count_against_the_limit,
    ]
}

fn bytes_key(bytes: &[u8]) -> StateKey {
    StateKey::new(Bytes::copy_from_slice(bytes)).unwrap()
}

async fn put_keys(store: &TestStore, keys: &[&[u8]]) {
    let puts = keys.iter().map(|key| StateOp::Put {
        key: bytes_key(key),
        value: Bytes::copy_from_slice(key),
        expires_at: None,
        expect: Expect::Any,
    });
    store.commit(of_state(puts.collect())).await;
}

async fn entries_are_complete_and_in_byte_order(store: TestStore) {
    for name in ["b", "a", "B", "é", "aa", "a\0", "\u{1}"] {
        store.put(name, &format!("value of {name}")).await;
    }
    let found = store.engine().scan(b"", None, 100).await.unwrap();
    let names: Vec<&[u8]> = found.iter().map(|entry| entry.key.as_bytes()).collect();
    assert_eq!(names, [&b"\x01"[..], b"B", b"a", b"a\0", b"aa", b"b", "é".as_bytes()]);
    for entry in found {
        let got = store.engine().get(&entry.key).await.unwrap();
        assert_eq!(got, Some(entry));
    }
}

async fn only_keys_with_the_prefix_are_returned(store: TestStore) {
    put_keys(&store, &[b"a", b"a/", b"a/1", b"a/2", b"a0", b"b/1", b"A/1"]).await;
    assert_eq!(store.scan(b"a/", None, 10).await, [&b"a/"[..], b"a/1", b"a/2"]);
    assert_eq!(store.scan(b"a/1", None, 10).await, [b"a/1"]);
    for none in [&b"a/11"[..], b"c", b"a/3", b"\0"] {
        assert_eq!(store.scan(none, None, 10).await, Vec::<Vec<u8>>::new());
    }
}

async fn a_prefix_may_contain_any_byte(store: TestStore) {
    put_keys(
        &store,
        &[
            b"\x00",
            b"\x00\x00",
            b"a\xfe",
            b"a\xff",
            b"a\xff\x00",
            b"a\xff\xff",
            b"b",
            b"\xff",
            b"\xff\x00",
            b"\xff\xff",
            b"\xff\xff\xff",
        ],
    )
    .await;
    assert_eq!(store.scan(b"a\xff", None, 10).await, [&b"a\xff"[..], b"a\xff\x00", b"a\xff\xff"]);
    assert_eq!(
        store.scan(b"\xff", None, 10).await,
        [&b"\xff"[..], b"\xff\x00", b"\xff\xff", b"\xff\xff\xff"]
    );
    assert_eq!(store.scan(b"\xff\xff", None, 10).await, [&b"\xff\xff"[..], b"\xff\xff\xff"]);
    assert_eq!(store.scan(b"\x00", None, 10).await, [&b"\x00"[..], b"\x00\x00"]);
}

async fn the_empty_prefix_matches_every_key(store: TestStore) {
    put_keys(&store, &[b"\xff\xff", b"m", b"\x00"]).await;
    assert_eq!(store.scan(b"", None, 10).await, [&b"\x00"[..], b"m", b"\xff\xff"]);
}

async fn consecutive_pages_have_no_gap_or_overlap(store: TestStore) {
    let names: Vec<String> = (0..25).map(|n| format!("p/{n:02}")).collect();
    store.commit(of_state(names.iter().map(|name| put(name, "v")).collect())).await;
    store.put("o", "before").await;
    store.put("q", "after").await;
    for limit in [1, 7, 24, 25, 26] {
        let mut joined = Vec::new();
        let mut after: Option<StateKey> = None;
        loop {
            let page = store.engine().scan(b"p/", after.as_ref(), limit).await.unwrap();
            assert!(page.len() <= limit);
            joined.extend(page.iter().map(|entry| entry.key.clone()));
            assert!(joined.len() <= names.len(), "a page was returned twice");
            if page.len() < limit {
                break;
            }
            after = joined.last().cloned();
        }
        let all: Vec<StateKey> = names.iter().map(|name| key(name)).collect();
        assert_eq!(joined, all, "limit {limit}");
    }
}

async fn after_need_not_exist(store: TestStore) {
    put_keys(&store, &[b"p/1", b"p/3"]).await;
    assert_eq!(store.scan(b"p/", Some(&key("p/2")), 9).await, [b"p/3"]);
    assert_eq!(store.scan(b"p/", Some(&key("p/1")), 9).await, [b"p/3"]);
    assert_eq!(store.scan(b"p/", Some(&key("p/3")), 9).await.len(), 0);
}

async fn after_may_lie_outside_the_prefix(store: TestStore) {
    put_keys(&store, &[b"o", b"p/1", b"p/2", b"q"]).await;
    assert_eq!(store.scan(b"p/", Some(&key("a")), 9).await.len(), 2);
    assert_eq!(store.scan(b"p/", Some(&key("p")), 9).await.len(), 2);
    assert_eq!(store.scan(b"p/", Some(&key("q")), 9).await.len(), 0);
    assert_eq!(store.scan(b"p/", Some(&key("z")), 9).await.len(), 0);
    assert_eq!(store.scan(b"", Some(&key("p/1")), 9).await.len(), 2);
}

async fn a_limit_of_zero_returns_nothing(store: TestStore) {
    put_keys(&store, &[b"a"]).await;
    assert_eq!(store.scan(b"", None, 0).await.len(), 0);
}

async fn fewer_entries_than_the_limit_end_the_scan(store: TestStore) {
    put_keys(&store, &[b"a", b"b", b"c"]).await;
    assert_eq!(store.scan(b"", None, 2).await, [b"a", b"b"]);
    assert_eq!(store.scan(b"", None, usize::MAX).await.len(), 3);
}

async fn deleted_keys_do_not_count_against_the_limit(store: TestStore) {
    put_keys(&store, &[b"a", b"b", b"c", b"d"]).await;
    store.commit(of_state(vec![delete("a"), delete("c")])).await;
    assert_eq!(store.scan(b"", None, 2).await, [b"b", b"d"]);
}
