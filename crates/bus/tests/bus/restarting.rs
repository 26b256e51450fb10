//! Groups after the bus stopped without closing.

use crate::harness::{Harness, at_most, attempts, disk, ids, orders, seqs, settle, unlimited};

#[tokio::test(start_paused = true)]
async fn attempts_continue_after_a_restart() {
    let mut harness = Harness::new();
    harness.publish(&orders(), 3).await;
    for attempt in 1..=4 {
        let consumer = harness.consumer(at_most(10)).await;
        let delivered = consumer.arrived().await;
        assert_eq!((seqs(&delivered), attempts(&delivered)), (vec![1, 2, 3], vec![attempt; 3]));
        // The bus is dropped first, so that nothing can be released.
        harness = harness.restart();
        drop(consumer);
    }
}

#[tokio::test(start_paused = true)]
async fn events_acknowledged_out_of_order_stay_done() {
    let harness = Harness::new();
    harness.publish(&orders(), 6).await;
    let consumer = harness.consumer(at_most(5)).await;
    let delivered = consumer.arrived().await;
    consumer.ack(ids(&delivered[1..3])).await;
    settle().await;
    let harness = harness.restart();
    let consumer = harness.consumer(at_most(10)).await;
    let mut again = consumer.arrived().await;
    again.sort_by_key(|delivery| delivery.event.seq);
    assert_eq!(seqs(&again), [1, 4, 5, 6]);
}

#[tokio::test]
async fn a_group_resumes_from_disk() {
    let folder = tempfile::tempdir().unwrap();
    let mut harness = Harness::over(disk(folder.path()), unlimited());
    harness.publish(&orders(), 10).await;
    for attempt in 1..=3_u32 {
        let consumer = harness.consumer(at_most(10)).await;
        let mut delivered = Vec::new();
        while delivered.len() < 11 - attempt as usize {
            delivered.push(consumer.next().await);
        }
        assert_eq!(attempts(&delivered), vec![attempt; delivered.len()]);
        assert_eq!(seqs(&delivered), (u64::from(attempt)..=10).collect::<Vec<_>>());
        consumer.ack(ids(&delivered[..1])).await;
        let engine = harness.engine.clone();
        drop(harness);
        engine.close().await.unwrap();
        drop((consumer, engine));
        harness = Harness::over(disk(folder.path()), unlimited());
    }
    harness.bus.close().await.unwrap();
}
