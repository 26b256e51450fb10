//! Concurrent calls behave as if they ran one after another.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use prombus_proto::{Event, EventId, Seq, Timestamp};
use tokio::task::JoinSet;

use super::case::{Case, cases};
use super::test_store::{
    EVERYTHING, TestStore, all_as_stored, as_stored, key, of_events, of_state, put, put_if,
    put_until, seqs_of, topic,
};
use crate::{Batch, CommitError, Committed, Conflict, Engine, Expect, Version};

pub(super) fn cases() -> Vec<Case> {
    cases![
        every_answer_has_the_positions_of_its_events,
        batches_are_contiguous_and_ordered_by_version,
        one_of_many_concurrent_appends_of_an_id_stores_it,
        one_of_many_concurrent_puts_with_the_same_expectation_wins,
        one_of_many_concurrent_appends_with_the_same_expected_position_wins,
        readers_see_a_growing_prefix_and_whole_batches,
        a_finished_commit_is_visible_to_every_task,
        scanned_entries_are_consistent_during_commits,
        trimming_during_appends_drops_no_more_than_requested,
        an_abandoned_commit_is_stored_as_a_whole_or_not_at_all,
    ]
}

/// Cases for engines whose commits are atomic across topics and state.
pub(super) fn cases_across_topics() -> Vec<Case> {
    cases![readers_never_see_topics_and_state_out_of_step]
}

/// Cases for engines that accept commits while others are in progress.
pub(super) fn pipelined_cases() -> Vec<Case> {
    cases![pipelined_commits_keep_their_order_and_fail_individually]
}

const WRITERS: usize = 8;
const TOPICS: [&str; 3] = ["a", "b", "c"];

/// Runs `work` for all writers concurrently and returns their results.
async fn all_writers<T, F>(work: impl Fn(usize) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        writers.spawn(work(writer));
    }
    writers.join_all().await
}

/// Creates batches for one writer, over all topics, of varying size and order.
fn batches_for(store: &TestStore, writer: usize, count: usize) -> Vec<Vec<Event>> {
    (0..count)
        .map(|round| {
            (0..1 + (writer + round) % 7)
                .map(|n| store.event(TOPICS[(writer + n * (1 + round % 2)) % TOPICS.len()]))
                .collect()
        })
        .collect()
}

/// Lets all writers commit their batches, and returns every batch with its result.
async fn write_all(store: &TestStore, rounds: usize) -> Vec<(Vec<Event>, Committed)> {
    let answers = all_writers(|writer| {
        let engine = store.engine().clone();
        let batches = batches_for(store, writer, rounds);
        async move {
            let mut answered = Vec::new();
            for events in batches {
                let committed = engine.commit(of_events(&events)).await.unwrap();
                answered.push((events, committed));
            }
            answered
        }
    });
    answers.await.into_iter().flatten().collect()
}

async fn every_answer_has_the_positions_of_its_events(store: TestStore) {
    let answers = write_all(&store, 15).await;
    let mut expected: BTreeMap<&str, BTreeMap<u64, &Event>> = BTreeMap::new();
    for (events, committed) in &answers {
        assert_eq!(committed.positions.len(), events.len());
        for (event, position) in events.iter().zip(&committed.positions) {
            assert!(!position.duplicate);
            let events = expected.entry(event.topic.as_str()).or_default();
            let other = events.insert(position.seq.0, event);
            assert!(other.is_none(), "two events at {:?}", position.seq);
        }
    }
    for (name, events) in expected {
        let expected: Vec<_> = events.iter().map(|(seq, e)| as_stored(e, *seq)).collect();
        let read = store.read_all(name).await;
        assert_eq!(
            seqs_of(&read),
            (1..=expected.len() as u64).collect::<Vec<_>>(),
            "a gap in {name}"
        );
        assert_eq!(read, expected);
    }
}

async fn batches_are_contiguous_and_ordered_by_version(store: TestStore) {
    let mut answers = write_all(&store, 15).await;
    answers.sort_by_key(|(_, committed)| committed.version);
    let mut next: BTreeMap<&str, u64> = TOPICS.iter().map(|name| (*name, 1)).collect();
    let mut last_version = None;
    for (events, committed) in &answers {
        let version = Some(committed.version);
        assert!(version > last_version, "a version was reused");
        last_version = version;
        for (event, position) in events.iter().zip(&committed.positions) {
            let next = next.get_mut(event.topic.as_str()).unwrap();
            assert_eq!(position.seq.0, *next, "not equivalent to any serial order");
            *next += 1;
        }
    }
}

async fn one_of_many_concurrent_appends_of_an_id_stores_it(store: TestStore) {
    for _ in 0..10 {
        let before = store.bounds("a").await.last();
        let events = store.events("a", 3);
        let answers = all_writers(|_| {
            let engine = store.engine().clone();
            let batch = of_events(&events);
            async move { engine.commit(batch).await.unwrap().positions }
        })
        .await;
        let stored = answers.iter().flatten().filter(|p| !p.duplicate).count();
        assert_eq!(stored, 3);
        for positions in answers {
            let seqs: Vec<u64> = positions.iter().map(|p| p.seq.0 - before.0).collect();
            assert_eq!(seqs, [1, 2, 3]);
        }
    }
    assert_eq!(store.read_all("a").await.len(), 30);
}

async fn one_of_many_concurrent_puts_with_the_same_expectation_wins(store: TestStore) {
    const STEPS: usize = 10;
    all_writers(|_| {
        let engine = store.engine().clone();
        async move {
            for _ in 0..STEPS {
                increment(&*engine).await;
            }
        }
    })
    .await;
    assert_eq!(store.value("counter").await.unwrap(), (WRITERS * STEPS).to_string());
}

/// Increments the counter with optimistic concurrency, retrying on conflicts.
async fn increment(engine: &dyn Engine) {
    loop {
        let (count, expect) = match engine.get(&key("counter")).await.unwrap() {
            Some(entry) => {
                let text = String::from_utf8(entry.value.to_vec()).unwrap();
                (text.parse().unwrap(), Expect::Version(entry.version))
            }
            None => (0usize, Expect::Absent),
        };
        let op = put_if("counter", &(count + 1).to_string(), expect);
        match engine.commit(of_state(vec![op])).await {
            Ok(_) => return,
            Err(CommitError::Conflict(Conflict::State { .. })) => tokio::task::yield_now().await,
            Err(other) => panic!("{other}"),
        }
    }
}

async fn one_of_many_concurrent_appends_with_the_same_expected_position_wins(store: TestStore) {
    for round in 0..10 {
        let answers = all_writers(|_| {
            let engine = store.engine().clone();
            let batch = Batch {
                expected_last: vec![(topic("a"), Seq(round))],
                ..of_events(&[store.event("a")])
            };
            async move { engine.commit(batch).await }
        })
        .await;
        let won = answers.iter().filter(|answer| answer.is_ok()).count();
        assert_eq!(won, 1);
        for answer in answers {
            match answer {
                Ok(committed) => assert_eq!(committed.positions[0].seq, Seq(round + 1)),
                Err(CommitError::Conflict(Conflict::Last { actual, .. })) => {
                    assert_eq!(actual, Seq(round + 1));
                }
                Err(other) => panic!("{other}"),
            }
        }
    }
}

/// The `sid` of the last event of every batch.
const LAST_OF_BATCH: &str = "last";

async fn readers_see_a_growing_prefix_and_whole_batches(store: TestStore) {
    let writing = Arc::new(AtomicUsize::new(WRITERS));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let engine = store.engine().clone();
            let writing = writing.clone();
            tokio::spawn(async move {
                let mut seen: Vec<EventId> = Vec::new();
                // Checked before the read, so that the last read sees everything.
                while writing.load(Ordering::SeqCst) > 0 {
                    seen = check_one_read(&*engine, seen).await;
                    tokio::task::yield_now().await;
                }
                check_one_read(&*engine, seen).await.len()
            })
        })
        .collect();
    all_writers(|writer| {
        let engine = store.engine().clone();
        let writing = writing.clone();
        let batches: Vec<Batch> = (0..25)
            .map(|round| {
                let mut events = store.events("a", 1 + (writer + round) % 5);
                events.last_mut().unwrap().sid = Some(LAST_OF_BATCH.into());
                of_events(&events)
            })
            .collect();
        async move {
            for batch in batches {
                engine.commit(batch).await.unwrap();
            }
            writing.fetch_sub(1, Ordering::SeqCst);
        }
    })
    .await;
    for reader in readers {
        assert_eq!(reader.await.unwrap(), store.read_all("a").await.len());
    }
}

/// Reads the whole topic, which must start with what was seen before and end with a complete batch.
async fn check_one_read(engine: &dyn Engine, seen: Vec<EventId>) -> Vec<EventId> {
    let bounds = engine.bounds(&topic("a")).await.unwrap();
    let read = engine.read(&topic("a"), Seq::ZERO, EVERYTHING).await;
    let events = read.unwrap().events;
    assert_eq!(seqs_of(&events), (1..=events.len() as u64).collect::<Vec<_>>());
    assert!(events.len() as u64 >= bounds.last().0);
    if let Some(last) = events.last() {
        let (_, event) = Event::decode(&last.json).unwrap();
        assert_eq!(event.sid.as_deref(), Some(LAST_OF_BATCH), "a torn batch");
    }
    let ids: Vec<EventId> = events.into_iter().map(|event| event.id).collect();
    assert!(ids.starts_with(&seen), "events that were read before have changed");
    ids
}

async fn a_finished_commit_is_visible_to_every_task(store: TestStore) {
    all_writers(|writer| {
        let engine = store.engine().clone();
        let events = store.events("a", 20);
        async move {
            for event in events {
                let name = format!("writer{writer}");
                let batch = Batch {
                    state: vec![put(&name, &event.id.to_string())],
                    ..of_events(std::slice::from_ref(&event))
                };
                let seq = engine.commit(batch).await.unwrap().positions[0].seq;
                let engine = engine.clone();
                let seen = tokio::spawn(async move {
                    let page = engine.read(&topic("a"), seq, EVERYTHING).await.unwrap();
                    assert_eq!(page.events[0], as_stored(&event, seq.0));
                    let found = engine.seek_id(&topic("a"), &event.id).await.unwrap();
                    assert_eq!(found, Some(seq));
                    assert!(engine.bounds(&topic("a")).await.unwrap().last() >= seq);
                    let entry = engine.get(&key(&name)).await.unwrap().unwrap();
                    assert_eq!(entry.value, event.id.to_string());
                });
                seen.await.unwrap();
            }
        }
    })
    .await;
}

async fn scanned_entries_are_consistent_during_commits(store: TestStore) {
    const KEYS: usize = 6;
    const ROUNDS: u64 = 60;
    let engine = store.engine().clone();
    let end_of = move |round: u64| Timestamp(u64::MAX - round);
    let scanner = tokio::spawn(async move {
        let mut seen = BTreeMap::new();
        loop {
            let entries = engine.scan(b"k", None, usize::MAX).await.unwrap();
            let mut finished = 0;
            for entry in &entries {
                let text = String::from_utf8(entry.value.to_vec()).unwrap();
                let round: u64 = text.parse().unwrap();
                assert_eq!(entry.expires_at, Some(end_of(round)), "parts of two different puts");
                let now = (round, entry.version);
                let before = seen.insert(entry.key.clone(), now);
                assert!(before.is_none_or(|(r, v)| (r, v) == now || (r < round && v < now.1)));
                finished += usize::from(round == ROUNDS);
            }
            if finished == KEYS {
                return;
            }
            tokio::task::yield_now().await;
        }
    });
    for round in 1..=ROUNDS {
        let puts =
            (0..KEYS).map(|n| put_until(&format!("k{n}"), &round.to_string(), end_of(round)));
        store.commit(of_state(puts.collect())).await;
    }
    scanner.await.unwrap();
}

async fn trimming_during_appends_drops_no_more_than_requested(store: TestStore) {
    const EVENTS: u64 = 300;
    let engine = store.engine().clone();
    let trimmer = tokio::spawn(async move {
        let mut growth = engine.watch(&topic("a"));
        loop {
            let last = *growth.borrow_and_update();
            // The last few events always stay.
            let below = Seq(last.0.saturating_sub(5));
            let left = engine.trim(&topic("a"), below).await.unwrap();
            assert_eq!(left.first, below.max(Seq::FIRST));
            let read = engine.read(&topic("a"), Seq::ZERO, EVERYTHING).await;
            let seqs = seqs_of(&read.unwrap().events);
            if last > Seq::ZERO {
                assert_eq!(seqs.first(), Some(&left.first.0));
            }
            assert!(seqs.is_sorted_by(|one, two| one + 1 == *two));
            if last.0 >= EVENTS {
                return left.first;
            }
            growth.changed().await.unwrap();
        }
    });
    for _ in 0..EVENTS / 3 {
        store.fill("a", 3).await;
    }
    let first = trimmer.await.unwrap();
    assert_eq!(first, Seq(EVENTS - 5));
    assert_eq!(store.bounds("a").await.first, first);
}

async fn an_abandoned_commit_is_stored_as_a_whole_or_not_at_all(store: TestStore) {
    for round in 0..20 {
        let events = store.events("a", 3);
        let batch = Batch { state: vec![put("round", &round.to_string())], ..of_events(&events) };
        let mut commit = store.engine().commit(batch.clone());
        std::future::poll_fn(|context| {
            let _ = commit.as_mut().poll(context);
            Poll::Ready(())
        })
        .await;
        drop(commit);
        // The abandoned commit may be stored before or after this one, or not at all; never in part,
        // never twice.
        let seqs: Vec<u64> =
            store.commit(batch).await.positions.iter().map(|position| position.seq.0).collect();
        assert_eq!(seqs, [round * 3 + 1, round * 3 + 2, round * 3 + 3]);
        assert_eq!(store.value("round").await.unwrap(), round.to_string());
    }
    assert_eq!(store.read_all("a").await.len(), 60);
}

async fn pipelined_commits_keep_their_order_and_fail_individually(store: TestStore) {
    const COMMITS: usize = 300;
    let has_conflict = |number: usize| number % 7 == 3;
    let batches: Vec<_> = (0..COMMITS).map(|number| store.events("a", 1 + number % 3)).collect();
    let mut in_progress = Vec::new();
    for (number, events) in batches.iter().enumerate() {
        let mut batch = of_events(events);
        if has_conflict(number) {
            batch.state = vec![put_if("never there", "x", Expect::Version(Version(1)))];
        }
        let mut commit = store.engine().commit(batch);
        let at_once = std::future::poll_fn(|context| {
            Poll::Ready(match commit.as_mut().poll(context) {
                Poll::Ready(outcome) => Some(outcome),
                Poll::Pending => None,
            })
        });
        let at_once = at_once.await;
        in_progress.push((commit, at_once));
    }
    let (mut last, mut reported) = (0, 0);
    for (number, (commit, at_once)) in in_progress.into_iter().enumerate() {
        let outcome = match at_once {
            Some(outcome) => outcome,
            None => commit.await,
        };
        if has_conflict(number) {
            let refused = matches!(outcome, Err(CommitError::Conflict(_)));
            assert!(refused, "{number}: {outcome:?}");
            continue;
        }
        let committed = outcome.unwrap();
        for position in &committed.positions {
            last += 1;
            assert_eq!(position.seq, Seq(last), "{number}");
        }
        reported += committed.write.map_or(0, |write| write.events);
    }
    // Every write is reported once, however many commits it stored.
    assert_eq!(reported as u64, last);
    let expected = batches.iter().enumerate().filter(|(number, _)| !has_conflict(*number));
    let expected: Vec<_> = expected.flat_map(|(_, events)| events.clone()).collect();
    assert_eq!(store.read_all("a").await, all_as_stored(&expected, 1));
}

async fn readers_never_see_topics_and_state_out_of_step(store: TestStore) {
    const COMMITS: u64 = 300;
    let engine = store.engine().clone();
    let reader = tokio::spawn(async move {
        for round in 1u64.. {
            let first = engine.bounds(&topic("a")).await.unwrap().last().0;
            let second = engine.bounds(&topic("b")).await.unwrap().last().0;
            let counted = match engine.get(&key("count")).await.unwrap() {
                Some(entry) => String::from_utf8(entry.value.to_vec()).unwrap(),
                None => "0".into(),
            };
            let third: u64 = counted.parse().unwrap();
            let fourth = engine.bounds(&topic("a")).await.unwrap().last().0;
            // Read one after another, and every commit advances all of them.
            assert!(
                first <= second && second <= third && third <= fourth,
                "{first} {second} {third} {fourth}"
            );
            if first == COMMITS {
                return;
            }
            // Rarely yields: a torn state would be visible only for a moment.
            if round % 64 == 0 {
                tokio::task::yield_now().await;
            }
        }
    });
    for count in 1..=COMMITS {
        let batch = Batch {
            state: vec![put("count", &count.to_string())],
            ..of_events(&[store.event("a"), store.event("b")])
        };
        store.commit(batch).await;
    }
    reader.await.unwrap();
}
