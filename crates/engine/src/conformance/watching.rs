//! Wake-ups.

use prombus_proto::Seq;

use super::case::{Case, cases};
use super::store::{EVERYTHING, Store, of_state, put, topic};

pub(super) fn cases() -> Vec<Case> {
    cases![
        a_watch_begins_with_the_last_position,
        a_watch_begins_with_the_last_position_of_a_trimmed_topic,
        growth_wakes_and_tells_the_last_position,
        growth_wakes_who_watched_before_the_first_event,
        several_watchers_are_all_woken,
        a_watch_made_again_goes_on,
        what_grows_elsewhere_is_not_told_here,
        duplicates_and_state_wake_nobody,
        the_value_is_never_ahead_of_what_is_read,
        following_a_watch_gives_every_event,
        a_watch_ends_when_the_engine_is_closed,
        a_watch_ends_when_the_engine_is_dropped,
    ]
}

async fn a_watch_begins_with_the_last_position(store: Store) {
    assert_eq!(*store.engine().watch(&topic("a")).borrow(), Seq::ZERO);
    store.fill("a", 3).await;
    assert_eq!(*store.engine().watch(&topic("a")).borrow(), Seq(3));
    store.fill("b", 2).await;
    assert_eq!(*store.engine().watch(&topic("b")).borrow(), Seq(2));
}

async fn a_watch_begins_with_the_last_position_of_a_trimmed_topic(store: Store) {
    store.fill("a", 3).await;
    store.trim("a", u64::MAX).await;
    assert_eq!(*store.engine().watch(&topic("a")).borrow(), Seq(3));
}

async fn growth_wakes_and_tells_the_last_position(store: Store) {
    store.fill("a", 1).await;
    let mut growth = store.engine().watch(&topic("a"));
    growth.borrow_and_update();
    let mut last = 1;
    for count in [1, 5, 1] {
        store.fill("a", count).await;
        last += count as u64;
        growth.changed().await.unwrap();
        // An engine may tell a batch in steps.
        growth.wait_for(|seq| *seq == Seq(last)).await.unwrap();
    }
}

async fn growth_wakes_who_watched_before_the_first_event(store: Store) {
    let mut growth = store.engine().watch(&topic("a"));
    let woken = tokio::spawn(async move {
        growth.changed().await.unwrap();
        *growth.borrow()
    });
    store.fill("a", 1).await;
    assert_eq!(woken.await.unwrap(), Seq(1));
}

async fn several_watchers_are_all_woken(store: Store) {
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

async fn a_watch_made_again_goes_on(store: Store) {
    drop(store.engine().watch(&topic("a")));
    store.fill("a", 2).await;
    let mut growth = store.engine().watch(&topic("a"));
    assert_eq!(*growth.borrow_and_update(), Seq(2));
    store.fill("a", 1).await;
    growth.wait_for(|seq| *seq == Seq(3)).await.unwrap();
}

async fn what_grows_elsewhere_is_not_told_here(store: Store) {
    store.fill("a", 1).await;
    let here = store.engine().watch(&topic("a"));
    let mut there = store.engine().watch(&topic("a.b"));
    store.fill("a.b", 5).await;
    there.wait_for(|seq| *seq == Seq(5)).await.unwrap();
    assert_eq!(*here.borrow(), Seq(1));
}

async fn duplicates_and_state_wake_nobody(store: Store) {
    let events = store.fill("a", 3).await;
    let mut growth = store.engine().watch(&topic("a"));
    growth.borrow_and_update();
    store.append(&events[..2]).await;
    store.commit(of_state(vec![put("a", "v")])).await;
    assert!(!growth.has_changed().unwrap());
    assert_eq!(*growth.borrow(), Seq(3));
}

async fn the_value_is_never_ahead_of_what_is_read(store: Store) {
    const BATCHES: u64 = 100;
    let engine = store.engine().clone();
    let mut growth = engine.watch(&topic("a"));
    let follower = tokio::spawn(async move {
        let mut told = Seq::ZERO;
        while told < Seq(2 * BATCHES) {
            growth.changed().await.unwrap();
            let last = *growth.borrow_and_update();
            assert!(last > told, "{last:?} was told after {told:?}");
            told = last;
            let page = engine.read(&topic("a"), told, EVERYTHING).await.unwrap();
            assert_eq!(page.events.first().map(|event| event.seq), Some(told));
        }
    });
    for _ in 0..BATCHES {
        store.fill("a", 2).await;
    }
    follower.await.unwrap();
}

async fn following_a_watch_gives_every_event(store: Store) {
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

async fn a_watch_ends_when_the_engine_is_closed(store: Store) {
    store.fill("a", 1).await;
    let mut growth = store.engine().watch(&topic("a"));
    growth.borrow_and_update();
    store.engine().close().await.unwrap();
    assert!(growth.changed().await.is_err());
}

async fn a_watch_ends_when_the_engine_is_dropped(mut store: Store) {
    store.fill("a", 1).await;
    let mut growth = store.engine().watch(&topic("a"));
    growth.borrow_and_update();
    store.drop_engine();
    assert!(growth.changed().await.is_err());
}
