//! What operators do to groups: seek, set, delete, look.

use std::time::Duration;

use prombus_bus::{
    AfterNack, GroupChange, MemberDetails, SeekOptions, Sought, StartAt, SubscribeOptions,
    WhyUnfinished,
};
use prombus_proto::frame::EndReason;
use prombus_proto::{ErrorCode, EventId, Group, Seq, Timestamp};

use crate::harness::{Harness, NOW, at_most, billing, from, ids, named, orders, seqs, settle};

const NEVER: Duration = Duration::from_secs(3600);
const DRY_RUN: SeekOptions = SeekOptions { honour_marks: false, dry_run: true };
const KEEP_MARKS: SeekOptions = SeekOptions { honour_marks: true, dry_run: false };

async fn seek(harness: &Harness, to: StartAt, options: SeekOptions) -> Sought {
    harness.bus.seek_group(&orders(), &billing(), &to, options).await.unwrap()
}

fn to(next: u64, events: u64, marks_removed: u64) -> Sought {
    Sought { next: Seq(next), events, marks_removed }
}

#[tokio::test(start_paused = true)]
async fn a_group_goes_back_and_forth_while_members_are_connected() {
    let harness = Harness::new();
    let event_ids = harness.publish(&orders(), 10).await;
    let consumer = harness.consumer(at_most(4)).await;
    let delivered = consumer.arrived().await;
    consumer.ack(ids(&delivered)).await;
    let leased = consumer.arrived().await;
    assert_eq!(seqs(&leased), [5, 6, 7, 8]);
    assert_eq!(seek(&harness, StartAt::Seq(Seq(3)), SeekOptions::default()).await, to(3, 8, 0));
    // The leases are lost: acknowledging them has no effect, unless they came again.
    let again = consumer.arrived().await;
    assert_eq!((seqs(&again), again[0].attempt), (vec![3, 4, 5, 6], 1));
    let acked = consumer.ack(ids(&leased[2..])).await;
    assert_eq!(acked.stale, [0, 1]);
    consumer.ack(ids(&again)).await;
    assert_eq!(seqs(&consumer.arrived().await), [7, 8, 9, 10]);
    assert_eq!(seek(&harness, StartAt::Latest, SeekOptions::default()).await, to(11, 0, 0));
    harness.publish(&orders(), 1).await;
    assert_eq!(seqs(&consumer.arrived().await), [11]);
    let after = StartAt::AfterId(event_ids[8].clone());
    assert_eq!(seek(&harness, after, SeekOptions::default()).await, to(10, 2, 0));
    assert_eq!(seqs(&consumer.arrived().await), [10, 11]);
    assert_eq!(seek(&harness, StartAt::Time(NOW), SeekOptions::default()).await, to(1, 11, 0));
    assert_eq!(seqs(&consumer.arrived().await), [1, 2, 3, 4]);
    // It is stored.
    drop(consumer);
    let harness = harness.restart();
    let consumer = harness.consumer(at_most(100)).await;
    assert_eq!(seqs(&consumer.arrived().await).len(), 11);
}

#[tokio::test(start_paused = true)]
async fn a_group_without_members_is_moved() {
    let harness = Harness::new();
    harness.publish(&orders(), 3).await;
    let consumer = harness.consumer(at_most(10)).await;
    consumer.ack(ids(&consumer.arrived().await)).await;
    let created = harness.cursor().await.created;
    drop(consumer);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(seek(&harness, StartAt::Earliest, DRY_RUN).await, to(1, 3, 0));
    assert_eq!(harness.cursor().await.floor, Seq(3));
    assert_eq!(seek(&harness, StartAt::Seq(Seq(2)), SeekOptions::default()).await, to(2, 2, 0));
    let cursor = harness.cursor().await;
    assert_eq!((cursor.floor, cursor.created), (Seq(1), created));
    let consumer = harness.consumer(at_most(10)).await;
    assert!(!consumer.info.created);
    assert_eq!(seqs(&consumer.arrived().await), [2, 3]);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_sought_is_refused() {
    let harness = Harness::new();
    harness.publish(&orders(), 3).await;
    let consumer = harness.consumer(at_most(10)).await;
    let delivered = consumer.arrived().await;
    let nobody = Group::new("nobody").unwrap();
    let missing = StartAt::AfterId(EventId::new("missing").unwrap());
    for (topic, group, to, code) in [
        (orders(), nobody, StartAt::Latest, ErrorCode::UnknownGroup),
        (named("other"), billing(), StartAt::Latest, ErrorCode::UnknownTopic),
        (orders(), billing(), missing, ErrorCode::UnknownId),
        (orders(), billing(), StartAt::Seq(Seq(5)), ErrorCode::BadFrame),
    ] {
        for options in [SeekOptions::default(), DRY_RUN] {
            let refusal = harness.bus.seek_group(&topic, &group, &to, options).await.unwrap_err();
            assert_eq!(refusal.code, code, "{refusal}");
        }
    }
    // No lease was lost.
    assert_eq!(consumer.ack(ids(&delivered)).await.stale, [0; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_group_that_goes_back_forgets_its_marks_unless_told_to_honour_them() {
    let harness = Harness::new();
    harness.publish(&orders(), 3).await;
    let consumer = harness.consumer(at_most(10)).await;
    let mail = harness.consumer_of("mail", at_most(10)).await;
    let until = Some(NOW.plus_ms(1_000_000));
    let delivered = ids(&consumer.arrived().await);
    for consumer in [&consumer, &mail] {
        settle().await;
        consumer.subscription.ack(delivered.clone(), until, None).await.unwrap().unwrap();
    }
    let marked = async || harness.engine.scan(b"dedupe/", None, 100).await.unwrap().len();
    assert_eq!(seek(&harness, StartAt::Earliest, KEEP_MARKS).await, to(1, 3, 0));
    assert_eq!(marked().await, 6);
    assert_eq!(seqs(&consumer.arrived().await), [1, 2, 3], "it is delivered all the same");
    assert_eq!(seek(&harness, StartAt::Latest, SeekOptions::default()).await, to(4, 0, 0));
    assert_eq!(marked().await, 6, "a group that goes forward keeps them");
    assert_eq!(seek(&harness, StartAt::Seq(Seq(3)), SeekOptions::default()).await, to(3, 1, 3));
    assert_eq!(marked().await, 3, "those of another group stay");
}

#[tokio::test(start_paused = true)]
async fn the_number_of_attempts_is_set_for_the_group() {
    let harness = Harness::new();
    harness.publish(&orders(), 1).await;
    let consumer = harness.consumer(at_most(10)).await;
    let details = harness.bus.group_details(&orders(), &billing()).await.unwrap();
    assert_eq!(details.max_attempts, 5);
    let change = |max_attempts| GroupChange { max_attempts: Some(max_attempts) };
    harness.bus.set_group(&orders(), &billing(), change(Some(1))).await.unwrap();
    let details = harness.bus.group_details(&orders(), &billing()).await.unwrap();
    assert_eq!(details.max_attempts, 1);
    consumer.nack(&consumer.next().await, None).await;
    settle().await;
    assert_eq!(harness.dead_letters().await.len(), 1);
    harness.bus.set_group(&orders(), &billing(), change(None)).await.unwrap();
    let details = harness.bus.group_details(&orders(), &billing()).await.unwrap();
    assert_eq!(details.max_attempts, 5);
    let nobody = Group::new("nobody").unwrap();
    let refusal = harness.bus.set_group(&orders(), &nobody, change(None)).await.unwrap_err();
    assert_eq!(refusal.code, ErrorCode::UnknownGroup);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_group_leaves_nothing_behind() {
    let harness = Harness::new();
    harness.publish(&orders(), 3).await;
    let options = SubscribeOptions { max_attempts: Some(3), ..at_most(10) };
    let consumer = harness.consumer(options.clone()).await;
    let mail = harness.consumer_of("mail", options).await;
    let until = Some(NOW.plus_ms(1_000_000));
    for consumer in [&consumer, &mail] {
        let delivered = ids(&consumer.arrived().await);
        consumer.subscription.ack(delivered[..2].to_vec(), until, None).await.unwrap().unwrap();
        let nacked =
            consumer.subscription.nack(delivered[2..].to_vec(), None, AfterNack::DeadLetter);
        nacked.await.unwrap().unwrap();
    }
    let selection = prombus_bus::LetterSelection { limit: 10, ..Default::default() };
    harness.bus.redrive(&orders(), selection).await.unwrap();
    let state = async || {
        let all = harness.engine.scan(b"", None, 1000).await.unwrap();
        let keys =
            all.iter().map(|entry| String::from_utf8_lossy(entry.key.as_bytes()).into_owned());
        keys.filter(|key| key.contains("::billing")).collect::<Vec<_>>()
    };
    // A cursor, properties, a redriven event and two marks.
    assert_eq!(state().await.len(), 5, "{:?}", state().await);
    harness.bus.delete_group(&orders(), &billing()).await.unwrap();
    assert_eq!(state().await, [""; 0]);
    let ended = consumer.connection.delivery_queue.take_ended();
    assert_eq!((ended.len(), ended[0].reason), (1, EndReason::GroupDeleted));
    assert!(consumer.next_within(NEVER).await.is_none());
    assert_eq!(mail.connection.delivery_queue.take_ended(), []);
    assert_eq!(harness.bus.groups_of(&orders()).await.unwrap().len(), 1);
    let refusal = harness.bus.delete_group(&orders(), &billing()).await.unwrap_err();
    assert_eq!(refusal.code, ErrorCode::UnknownGroup);
    let text = harness.bus.metrics_text().await.unwrap();
    assert!(!text.contains("group=\"billing\""), "{text}");
    // It begins again.
    let again = harness.consumer(from(StartAt::Earliest)).await;
    assert!(again.info.created);
    assert_eq!(seqs(&again.arrived().await), [1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_group_says_what_keeps_its_oldest_event() {
    let harness = Harness::new();
    let why = async || {
        let details = harness.bus.group_details(&orders(), &billing()).await.unwrap();
        assert!(!details.is_remote);
        details.oldest.map(|oldest| (oldest.seq.0, oldest.attempts.deliveries, oldest.why))
    };
    let consumer = harness.consumer(at_most(1)).await;
    assert_eq!(why().await, None);
    consumer.subscription.pause().await.unwrap().unwrap();
    let event_ids = harness.publish(&orders(), 2).await;
    settle().await;
    assert_eq!(why().await, Some((1, 0, WhyUnfinished::Paused)));
    consumer.subscription.resume().await.unwrap().unwrap();
    let delivery = consumer.next().await;
    let Some((1, 1, WhyUnfinished::InFlight { left })) = why().await else { panic!("in flight") };
    assert!(left > Duration::from_secs(29) && left <= Duration::from_secs(30));
    consumer.nack(&delivery, Some(Duration::from_secs(60))).await;
    let second = consumer.next().await;
    let Some((1, 1, WhyUnfinished::BackingOff { left })) = why().await else { panic!("waits") };
    assert!(left > Duration::from_secs(58) && left <= Duration::from_secs(60));
    let details = harness.bus.group_details(&orders(), &billing()).await.unwrap();
    let oldest = details.oldest.unwrap();
    assert_eq!(oldest.last_reason.as_deref(), Some("no stock"));
    assert_eq!((oldest.id, oldest.attempts.failures), (Some(event_ids[0].clone()), 1));
    let member = MemberDetails {
        principal: None,
        in_flight: 1,
        max_in_flight: 1,
        ack_timeout: Duration::from_secs(30),
        is_paused: false,
    };
    assert_eq!(details.members, [member]);
    // It is redeliverable, and the only member has its hands full.
    let extended = consumer.subscription.extend(second.event.id.clone(), Duration::from_secs(600));
    extended.await.unwrap().unwrap();
    harness.pass(Duration::from_secs(61)).await;
    assert_eq!(why().await, Some((1, 1, WhyUnfinished::MembersBusy)));
    consumer.ack(vec![second.event.id]).await;
    drop(consumer);
    settle().await;
    let (seq, _, reason) = why().await.unwrap();
    assert_eq!((seq, reason), (1, WhyUnfinished::NoMembers));
    let details = harness.bus.group_details(&orders(), &billing()).await.unwrap();
    assert_eq!((details.members.len(), details.overview.lag.events), (0, 1));
    assert_eq!(details.overview.cursor.created, Timestamp(NOW.0));
}
