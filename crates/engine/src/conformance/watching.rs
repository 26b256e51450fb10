//! Watching a topic grow.

use prombus_proto::Seq;

use super::case::{Case, cases};
use super::test_store::{EVERYTHING, TestStore, of_state, put, topic};

pub(super) fn cases() -> Vec<Case> {
    cases![
        a_watch_starts_with_the_last_position,
        a_watch_of_a_trimmed_topic_starts_with_the_last_position,
        an_append_wakes_with_the_last_position,
        the_first_event_of_a_topic_wakes_earlier_watchers,
        all_watchers_are_woken,
        a_new_watch_works_after_the_first_was_dropped,
        appends_to_another_topic_do_not_change_the_watch,
        duplicates_and_state_wake_no_watcher,
        the_watched_position_is_never_ahead_of_reads,
        following_a_watch_returns_every_event,
        a_watch_ends_when_the_engine_is_closed,
        a_watch_ends_when_the_engine_is_dropped,
    ]
}

async fn a_watch_starts_with_the_last_position(store: TestStore) {
    assert_eq!(*store.engine().watch(&topic("a")).borrow(), Seq::ZERO);
    store.fill("a", 3).await;
    assert_eq!(*store.engine().watch(&topic("a")).borrow(), Seq(3));
    store.fill("b", 2).await;
    assert_eq!(*store.engine().watch(&topic("b")).borrow(), Seq(2));
}

async fn a_watch_of_a_trimmed_topic_starts_with_the_last_position(store: TestStore) {
    store.fill("a", 3).await;
    store.trim("a", u64::MAX).await;
    assert_eq!(*store.engine().watch(&topic("a")).borrow(), Seq(3));
}

async fn an_append_wakes_with_the_last_position(store: TestStore) {
    store.fill("a", 1).await;
    let mut growth = store.engine().watch(&topic("a"));
    growth.borrow_and_update();
    let mut last = 1;
    for count in [1, 5, 1] {
        store.fill("a", count).await;
        last += count as u64;
        growth.changed().await.unwrap();
        // An engine may report a batch in several steps.
        growth.wait_for(|seq| *seq == Seq(last)).await.unwrap();
    }
}

async fn the_first_event_of_a_topic_wakes_earlier_watchers(store: TestStore) {
    let mut growth = store.engine().watch(&topic("a"));
    let woken = tokio::spawn(async move {
        growth.changed().await.unwrap();
        *growth.borrow()
    });
    store.fill("a", 1).await;
    assert_eq!(woken.await.unwrap(), Seq(1));
}

async fn all_watchers_are_woken(store: TestStore) {
    let watchers: Vec<_> = (0..5)
        .map(|_| {
            let mut growth = store.engine().watch(&topic("a"));
            tokio::spawn(async move { *growth.wait_for(|seq| *seq >= Seq(2)).await.unwrap() })
        })
        .collect();
    store.fill("a", 2).await;
    for watcher in watchers {
        assert_eq!(watcher.await.unwrap(), Seq(2));
    }
}

async fn a_new_watch_works_after_the_first_was_dropped(store: TestStore) {
    drop(store.engine().watch(&topic("a")));
    store.fill("a", 2).await;
    let mut growth = store.engine().watch(&topic("a"));
    assert_eq!(*growth.borrow_and_update(), Seq(2));
    store.fill("a", 1).await;
    growth.wait_for(|seq| *seq == Seq(3)).await.unwrap();
}

async fn appends_to_another_topic_do_not_change_the_watch(store: TestStore) {
    store.fill("a", 1).await;
    let here = store.engine().watch(&topic("a"));
    let mut there = store.engine().watch(&topic("a.b"));
    store.fill("a.b", 5).await;
    there.wait_for(|seq| *seq == Seq(5)).await.unwrap();
    assert_eq!(*here.borrow(), Seq(1));
}

async fn duplicates_and_state_wake_no_watcher(store: TestStore) {
    let events = store.fill("a", 3).await;
    let mut growth = store.engine().watch(&topic("a"));
    growth.borrow_and_update();
    store.append(&events[..2]).await;
    store.commit(of_state(vec![put("a", "v")])).await;
    assert!(!growth.has_changed().unwrap());
    assert_eq!(*growth.borrow(), Seq(3));
}

async fn the_watched_position_is_never_ahead_of_reads(store: TestStore) {
    const BATCHES: u64 = 100;
    let engine = store.engine().clone();
    let mut growth = engine.watch(&topic("a"));
    let follower = tokio::spawn(async move {
        let mut seen = Seq::ZERO;
        while seen < Seq(2 * BATCHES) {
            growth.changed().await.unwrap();
            let last = *growth.borrow_and_update();
            assert!(last > seen, "{last:?} after {seen:?}");
            seen = last;
            let page = engine.read(&topic("a"), seen, EVERYTHING).await.unwrap();
            assert_eq!(page.events.first().map(|event| event.seq), Some(seen));
        }
    });
    for _ in 0..BATCHES {
        store.fill("a", 2).await;
    }
    follower.await.unwrap();
}

async fn following_a_watch_returns_every_event(store: TestStore) {
    const EVENTS: usize = 120;
    let engine = store.engine().clone();
    let mut growth = engine.watch(&topic("a"));
    let follower = tokio::spawn(async move {
        let mut followed = Vec::new();
        while followed.len() < EVENTS {
            growth.changed().await.unwrap();
            let from = Seq(followed.len() as u64 + 1);
            let page = engine.read(&topic("a"), from, EVERYTHING).await.unwrap();
            followed.extend(page.events);
        }
        followed
    });
    for _ in 0..EVENTS / 3 {
        store.fill("a", 3).await;
    }
    assert_eq!(follower.await.unwrap(), store.read_all("a").await);
}

async fn a_watch_ends_when_the_engine_is_closed(store: TestStore) {
    store.fill("a", 1).await;
    let mut growth = store.engine().watch(&topic("a"));
    growth.borrow_and_update();
    store.engine().close().await.unwrap();
    assert!(growth.changed().await.is_err());
}

async fn a_watch_ends_when_the_engine_is_dropped(mut store: TestStore) {
    store.fill("a", 1).await;
    let mut growth = store.engine().watch(&topic("a"));
    growth.borrow_and_update();
    store.drop_engine();
    assert!(growth.changed().await.is_err());
}
