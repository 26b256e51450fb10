//! A store that breaks the contract of reads: its answers lead back to where a reader is. Readers fail
//! instead of reading forever.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use prombus_bus::{ReadBudget, StartAt};
use prombus_engine::delegating::DelegatingEngine;
use prombus_engine::{CommitError, Damaged, Engine, Page, ReadError};
use prombus_proto::{ErrorCode, Key, Seq, Topic};

use crate::harness::{Harness, at_most, memory, orders, unlimited};

/// What every read of an event behind the first three answers.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Nothing,
    /// Damage that ends before the event.
    EarlierDamage,
    /// Events before the event.
    EarlierEvents,
}

struct StuckEngine {
    inner: Arc<dyn Engine>,
    answer: Mutex<Answer>,
    reads: AtomicUsize,
}

const STUCK_AT: Seq = Seq(4);

#[async_trait]
impl DelegatingEngine for StuckEngine {
    fn inner(&self) -> &dyn Engine {
        &*self.inner
    }

    async fn read(&self, topic: &Topic, from: Seq, budget: ReadBudget) -> Result<Page, ReadError> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        let answer = *self.answer.lock();
        if *topic != orders() {
            return self.inner.read(topic, from, budget).await;
        }
        if from < STUCK_AT {
            let mut page = self.inner.read(topic, from, budget).await?;
            page.events.retain(|event| event.seq < STUCK_AT);
            return Ok(page);
        }
        match answer {
            Answer::Nothing => Ok(Page::default()),
            Answer::EarlierEvents => self.inner.read(topic, Seq::FIRST, budget).await,
            Answer::EarlierDamage => {
                let (first, last) = (Seq(2), Seq(3));
                let detail = "a flipped bit".to_owned();
                Err(Damaged::Events { topic: topic.clone(), first, last, detail }.into())
            }
        }
    }

    async fn close(&self) -> Result<(), CommitError> {
        self.inner.close().await
    }
}

async fn stuck(answer: Answer) -> (Harness, Arc<StuckEngine>) {
    let (answer, reads) = (Mutex::new(answer), AtomicUsize::new(0));
    let engine = Arc::new(StuckEngine { inner: memory(), answer, reads });
    let harness = Harness::over(engine.clone(), unlimited());
    harness.publish(&orders(), 10).await;
    (harness, engine)
}

const ANSWERS: [Answer; 3] = [Answer::Nothing, Answer::EarlierDamage, Answer::EarlierEvents];

#[tokio::test(start_paused = true)]
async fn a_read_fails() {
    for answer in ANSWERS {
        let (harness, _) = stuck(answer).await;
        let read = harness.bus.read(&orders(), STUCK_AT..Seq(11), ReadBudget::of_events(5)).await;
        assert_eq!(read.unwrap_err().code, ErrorCode::StorageUnavailable, "{answer:?}");
        let latest = harness.bus.latest_by_key(&orders(), &Key::new("k").unwrap()).await;
        assert_eq!(latest.unwrap_err().code, ErrorCode::StorageUnavailable, "{answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_follower_fails() {
    for answer in ANSWERS {
        let (harness, _) = stuck(answer).await;
        let mut follower = harness.bus.follow(&orders(), &StartAt::Seq(STUCK_AT)).await.unwrap();
        // Lets the follower know that there is an event.
        harness.publish(&orders(), 1).await;
        let page =
            tokio::time::timeout(Duration::from_secs(60), follower.page(ReadBudget::of_events(5)));
        let page = page.await.expect("it must not wait for events that are there");
        assert_eq!(page.unwrap_err().code, ErrorCode::StorageUnavailable, "{answer:?}");
    }
}

/// The group retries with a delay, and writes no dead letters for events it has already delivered.
#[tokio::test(start_paused = true)]
async fn a_group_retries_slowly() {
    for answer in ANSWERS {
        let (harness, engine) = stuck(answer).await;
        let harness = harness.restart();
        let consumer = harness.consumer(at_most(100)).await;
        assert_eq!(consumer.arrived().await.len(), 3, "{answer:?}");
        let before = engine.reads.load(Ordering::SeqCst);
        tokio::time::sleep(Duration::from_secs(20)).await;
        let reads = engine.reads.load(Ordering::SeqCst) - before;
        assert!(reads < 100, "{answer:?}: {reads} reads in 20 s");
        assert!(harness.dead_letters().await.is_empty(), "{answer:?}");
    }
}
