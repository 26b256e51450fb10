//! What operators ask of one gateway while another one delivers the group.

use std::sync::Arc;
use std::time::Duration;

use prombus_bus::{
    AfterNack, GroupChange, LetterSelection, SeekOptions, Settings, StartAt, WhyUnfinished,
};
use prombus_engine::Engine;
use prombus_proto::frame::EndReason;
use prombus_proto::{ErrorCode, Seq};

use crate::harness::{Consumer, Harness, at_most, billing, ids, memory, orders, seqs, unlimited};
use crate::watched_engine::WatchedEngine;

/// Long enough for every gateway to see what another one has changed, and to claim a group that was taken from it.
const TWO_LOOKS: Duration = Duration::from_millis(2200);

fn gateways() -> [Harness; 3] {
    let store: Arc<dyn Engine> = WatchedEngine::for_several(memory());
    let settings = Settings { group_lease: Duration::from_secs(10), ..unlimited() };
    [1, 2, 3].map(|number| Harness::numbered(number, Arc::clone(&store), settings.clone()))
}

async fn seek(harness: &Harness, to: StartAt) {
    let options = SeekOptions::default();
    harness.bus.seek_group(&orders(), &billing(), &to, options).await.unwrap();
}

async fn redrive(harness: &Harness) -> u64 {
    let selection = LetterSelection { limit: 1000, ..LetterSelection::default() };
    harness.bus.redrive(&orders(), selection).await.unwrap().redriven
}

async fn ack_all(consumers: &[&Consumer]) -> Vec<u64> {
    let mut seen = Vec::new();
    for consumer in consumers {
        let delivered = consumer.arrived().await;
        seen.extend(seqs(&delivered));
        consumer.ack(ids(&delivered)).await;
    }
    seen.sort_unstable();
    seen
}

#[tokio::test(start_paused = true)]
async fn a_group_is_moved_although_another_gateway_delivers_it() {
    let [one, two, three] = gateways();
    one.publish(&orders(), 5).await;
    let (first, second) = (one.consumer(at_most(100)).await, two.consumer(at_most(100)).await);
    assert_eq!(ack_all(&[&first, &second]).await, [1, 2, 3, 4, 5]);
    for (from, expected) in [(3, vec![3, 4, 5]), (1, vec![1, 2, 3, 4, 5]), (6, vec![])] {
        // The third gateway has no members.
        seek(&three, StartAt::Seq(Seq(from))).await;
        tokio::time::sleep(TWO_LOOKS).await;
        assert_eq!(ack_all(&[&first, &second]).await, expected);
    }
    // By the gateway that delivers it, and by the one that stands by.
    for harness in [&one, &two] {
        seek(harness, StartAt::Seq(Seq(4))).await;
        tokio::time::sleep(TWO_LOOKS).await;
        assert_eq!(ack_all(&[&first, &second]).await, [4, 5]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_leased_before_a_move_cannot_be_acknowledged() {
    let [one, two, _] = gateways();
    one.publish(&orders(), 5).await;
    let consumer = one.consumer(at_most(100)).await;
    let delivered = consumer.arrived().await;
    seek(&two, StartAt::Latest).await;
    let acked = consumer.ack(ids(&delivered)).await;
    assert_eq!(acked.stale.len(), 5);
    tokio::time::sleep(TWO_LOOKS).await;
    one.publish(&orders(), 1).await;
    assert_eq!(ack_all(&[&consumer]).await, [6]);
    assert_eq!(one.cursor().await.floor, Seq(6));
}

#[tokio::test(start_paused = true)]
async fn dead_letters_are_redriven_once_whichever_gateways_are_asked() {
    let [one, two, three] = gateways();
    one.publish(&orders(), 5).await;
    let consumer = one.consumer(at_most(100)).await;
    let delivered = ids(&consumer.arrived().await);
    let nacked = consumer.subscription.nack(delivered, None, AfterNack::DeadLetter);
    nacked.await.unwrap().unwrap();
    let (a, b, c) = tokio::join!(redrive(&one), redrive(&two), redrive(&three));
    assert_eq!(a + b + c, 5);
    tokio::time::sleep(TWO_LOOKS).await;
    assert_eq!(ack_all(&[&consumer]).await, [1, 2, 3, 4, 5]);
    assert_eq!(redrive(&three).await, 0);
    drop(consumer);
    let consumer = two.consumer(at_most(100)).await;
    tokio::time::sleep(TWO_LOOKS).await;
    assert_eq!(ack_all(&[&consumer]).await, [0; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_group_that_one_gateway_deletes_ends_at_the_others() {
    let [one, two, three] = gateways();
    one.publish(&orders(), 5).await;
    let (first, second) = (one.consumer(at_most(2)).await, two.consumer(at_most(2)).await);
    let delivered = first.arrived().await;
    three.bus.delete_group(&orders(), &billing()).await.unwrap();
    let acked = first.ack(ids(&delivered)).await;
    assert_eq!(acked.stale.len(), 2, "the group is gone");
    tokio::time::sleep(TWO_LOOKS).await;
    for consumer in [&first, &second] {
        let ended = consumer.connection.delivery_queue.take_ended();
        assert_eq!((ended.len(), ended[0].reason), (1, EndReason::GroupDeleted));
        assert!(consumer.next_within(Duration::from_secs(3600)).await.is_none());
    }
    let left = one.engine.scan(b"", None, 1000).await.unwrap();
    let left = left.iter().map(|entry| String::from_utf8_lossy(entry.key.as_bytes()));
    let left: Vec<_> = left.filter(|key| key.contains("billing")).collect();
    assert_eq!(left, ["ended/orders::billing"], "it tells the other gateways");
    let refusal = two.bus.delete_group(&orders(), &billing()).await.unwrap_err();
    assert_eq!(refusal.code, ErrorCode::UnknownGroup);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_group_ends_although_it_begins_again_before_others_look() {
    let [one, two, three] = gateways();
    one.publish(&orders(), 5).await;
    let (first, second) = (one.consumer(at_most(2)).await, two.consumer(at_most(2)).await);
    first.arrived().await;
    three.bus.delete_group(&orders(), &billing()).await.unwrap();
    // Another group of this name, which nobody owns any more when the second gateway looks at the lease.
    drop(three.consumer(at_most(2)).await);
    tokio::time::sleep(TWO_LOOKS).await;
    for (name, consumer) in [("the owner", &first), ("the one that stands by", &second)] {
        let delivered = seqs(&consumer.arrived().await);
        assert_eq!(delivered, [0; 0], "{name} gets events of a group that it has not joined");
        let ended = consumer.connection.delivery_queue.take_ended();
        assert_eq!(ended.len(), 1, "the subscription at {name} is over");
    }
}

#[tokio::test(start_paused = true)]
async fn properties_that_one_gateway_sets_apply_at_the_owner() {
    let [one, two, _] = gateways();
    one.publish(&orders(), 1).await;
    let consumer = one.consumer(at_most(2)).await;
    let delivery = consumer.next().await;
    let change = GroupChange { max_attempts: Some(Some(1)) };
    two.bus.set_group(&orders(), &billing(), change).await.unwrap();
    tokio::time::sleep(TWO_LOOKS).await;
    let details = two.bus.group_details(&orders(), &billing()).await.unwrap();
    assert_eq!((details.max_attempts, details.is_remote, details.members.len()), (1, true, 0));
    assert_eq!(details.oldest.unwrap().why, WhyUnfinished::AtAnotherGateway);
    let details = one.bus.group_details(&orders(), &billing()).await.unwrap();
    assert_eq!((details.is_remote, details.members.len()), (false, 1));
    consumer.nack(&delivery, None).await;
    tokio::time::sleep(TWO_LOOKS).await;
    assert_eq!(one.dead_letters().await.len(), 1);
}
