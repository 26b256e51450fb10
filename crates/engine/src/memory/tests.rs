//! Beyond the contract, retention of this engine is exact.

use bytes::Bytes;
use prombus_proto::{Event, Headers, ManualClock, Payload};

use super::*;

/// Stores one event at each of `times`, in this order, and then lets it be 1000.
async fn engine_with_times(times: &[u64]) -> (MemoryEngine, Topic) {
    let clock = ManualClock::default();
    let engine = MemoryEngine::new(Arc::new(clock.clone()));
    let topic = Topic::new("a").unwrap();
    for (n, time) in times.iter().enumerate() {
        let event = Event {
            id: EventId::new(&format!("e{n}")).unwrap(),
            ts: Timestamp(500),
            topic: topic.clone(),
            key: None,
            headers: Headers::default(),
            payload: Payload::parse(Bytes::from_static(b"1")).unwrap(),
            caused_by: vec![],
            tags: vec![],
            sid: None,
        };
        clock.set(Timestamp(*time));
        engine.commit(Batch::of_events(vec![event.encode()], Durability::Fsync)).await.unwrap();
    }
    clock.set(Timestamp(1000));
    (engine, topic)
}

#[tokio::test]
async fn retention_by_age_stops_at_the_first_retained_event() {
    let (engine, topic) = engine_with_times(&[899, 899, 900, 100, 950]).await;
    let rule = Retention { max_age_ms: Some(100), ..Retention::default() };
    assert_eq!(engine.retain(&topic, &rule).await.unwrap().first, Seq(3));
    // After the clock stepped back, an event counts as stored as late as the one before it.
    let rule = Retention { max_age_ms: Some(99), ..Retention::default() };
    assert_eq!(engine.retain(&topic, &rule).await.unwrap().first, Seq(5));
}

#[tokio::test]
async fn retention_by_size_keeps_everything_that_fits() {
    let (engine, topic) = engine_with_times(&[900; 5]).await;
    let all = engine.bounds(&topic).await.unwrap().bytes;
    for (max_bytes, first) in [(all, 1), (all - 1, 2), (all / 5 * 2, 4), (0, 6)] {
        let rule = Retention { max_bytes: Some(max_bytes), ..Retention::default() };
        let left = engine.retain(&topic, &rule).await.unwrap();
        assert_eq!(left.first, Seq(first));
        assert!(left.bytes <= max_bytes);
    }
}
