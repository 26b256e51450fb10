//! Redriving, listing and dropping dead letters.

use std::time::Duration;

use prombus_bus::{
    AfterNack, Delivery, LetterPage, LetterSelection, Purge, ReadBudget, Redriven, SeekOptions,
    StartAt, SubscribeOptions,
};
use prombus_proto::{ErrorCode, EventId, Group, Seq};

use crate::harness::{
    Consumer, Harness, at_most, billing, event, ids, named, orders, seqs, settle,
};

const NEVER: Duration = Duration::from_secs(3600);

fn all() -> LetterSelection {
    LetterSelection { limit: 1000, ..LetterSelection::default() }
}

fn with_ids(ids: &[EventId]) -> LetterSelection {
    LetterSelection { ids: Some(ids.to_vec()), ..all() }
}

/// Redrives letters of orders, and returns how many were redriven and skipped.
async fn redrive(harness: &Harness, selection: LetterSelection) -> (u64, u64) {
    let done = harness.bus.redrive(&orders(), selection).await.unwrap();
    let Redriven { redriven, skipped, next, .. } = done;
    assert_eq!(next, None);
    (redriven, skipped)
}

async fn give_up(consumer: &Consumer, delivered: &[Delivery]) {
    let reason = Some("poison".to_owned());
    let nacked = consumer.subscription.nack(ids(delivered), reason, AfterNack::DeadLetter);
    nacked.await.unwrap().unwrap();
}

/// A topic with `count` events, all of which billing has given up on.
async fn dead(harness: &Harness, count: usize) -> (Consumer, Vec<EventId>) {
    let ids = harness.publish(&orders(), count).await;
    let consumer = harness.consumer(at_most(100)).await;
    let delivered = consumer.arrived().await;
    assert_eq!(delivered.len(), count);
    give_up(&consumer, &delivered).await;
    (consumer, ids)
}

async fn list(harness: &Harness) -> LetterPage {
    harness.bus.dead_letters(&orders(), all()).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_redriven_event_goes_to_the_group_that_failed_and_to_no_other() {
    let harness = Harness::new();
    let mail = harness.consumer_of("mail", at_most(100)).await;
    let (consumer, ids) = dead(&harness, 3).await;
    mail.ack(self::ids(&mail.arrived().await)).await;
    assert_eq!(redrive(&harness, with_ids(&ids[1..2])).await, (1, 0));
    let again = consumer.arrived().await;
    assert_eq!((seqs(&again), again[0].attempt), (vec![2], 1));
    assert_eq!(again[0].event.id, ids[1]);
    assert_eq!(mail.arrived().await.len(), 0);
    // A second call does nothing more, before and after it is finished.
    assert_eq!(redrive(&harness, with_ids(&ids[1..2])).await, (0, 1));
    consumer.ack(self::ids(&again)).await;
    assert_eq!(redrive(&harness, with_ids(&ids[1..2])).await, (0, 1));
    assert!(consumer.next_within(NEVER).await.is_none());
    let listed = list(&harness).await.letters;
    let flags: Vec<_> = listed.iter().map(|letter| letter.redriven).collect();
    assert_eq!(flags, [false, true, false]);
    assert_eq!(redrive(&harness, all()).await, (2, 1));
    assert_eq!(seqs(&consumer.arrived().await), [1, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_redriven_event_is_retried_like_any_other_and_survives_restarts() {
    let harness = Harness::new();
    let (consumer, _) = dead(&harness, 2).await;
    drop(consumer);
    assert_eq!(redrive(&harness, all()).await, (2, 0));
    let harness = harness.restart();
    let consumer = harness.consumer(at_most(1)).await;
    let first = consumer.next().await;
    assert_eq!((first.event.seq, first.attempt), (Seq(1), 1));
    consumer.nack(&first, None).await;
    let second = consumer.next().await;
    assert_eq!((second.event.seq, second.attempt), (Seq(2), 1));
    consumer.ack(vec![second.event.id]).await;
    drop(consumer);
    let harness = harness.restart();
    let consumer = harness.consumer(at_most(1)).await;
    assert!(consumer.arrived().await.is_empty(), "it backs off");
    harness.pass(Duration::from_secs(2)).await;
    let again = consumer.next().await;
    assert_eq!((again.event.seq, again.attempt), (Seq(1), 2));
    give_up(&consumer, &[again]).await;
    assert_eq!(harness.dead_letters().await.len(), 3);
    // The new letter is another one.
    assert_eq!(redrive(&harness, all()).await, (1, 2));
    let last = consumer.next().await;
    assert_eq!((last.event.seq, last.attempt), (Seq(1), 1));
    consumer.ack(vec![last.event.id]).await;
    let harness = harness.restart();
    let consumer = harness.consumer(at_most(1)).await;
    assert!(consumer.next_within(NEVER).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn an_event_that_retention_took_comes_from_its_letter() {
    let harness = Harness::new();
    let connection = harness.bus.connect();
    let events = vec![event("{\"order\":  1.0}"), event("2"), event("3")];
    harness.try_publish(&connection, &orders(), events).await.unwrap();
    let stored = crate::harness::stored(harness.engine.as_ref(), &orders()).await;
    let consumer = harness.consumer(at_most(100)).await;
    give_up(&consumer, &consumer.arrived().await).await;
    harness.bus.purge_topic(&orders(), Purge::BeforeSeq(Seq(3))).await.unwrap();
    assert_eq!(redrive(&harness, all()).await, (3, 0));
    let again = consumer.arrived().await;
    assert_eq!(seqs(&again), [1, 2, 3]);
    let mut json = Vec::new();
    again[0].event.write_json(&mut json);
    assert_eq!(json, stored[0].json);
    // Its next dead letter has the event, too.
    give_up(&consumer, &again).await;
    let letters = list(&harness).await.letters;
    assert_eq!(letters.len(), 6);
    assert_eq!(letters[3].original.as_ref().unwrap().get().as_bytes(), stored[0].json);
    assert_eq!(letters[3].original_id.as_ref(), Some(&stored[0].id));
}

#[tokio::test(start_paused = true)]
async fn an_event_that_nobody_has_any_more_is_given_up() {
    let harness = Harness::new();
    let (consumer, _) = dead(&harness, 2).await;
    drop(consumer);
    redrive(&harness, all()).await;
    harness.bus.purge_topic(&orders(), Purge::All).await.unwrap();
    harness.bus.purge_topic(&named("dlq.orders"), Purge::BeforeSeq(Seq(2))).await.unwrap();
    let consumer = harness.consumer(at_most(100)).await;
    let delivered = consumer.arrived().await;
    assert_eq!(seqs(&delivered), [2]);
    consumer.ack(ids(&delivered)).await;
    let details = harness.bus.group_details(&orders(), &billing()).await.unwrap();
    assert_eq!((details.redriving, details.oldest.is_none()), (0, true));
}

#[tokio::test(start_paused = true)]
async fn letters_of_unknown_groups_are_skipped() {
    let harness = Harness::new();
    let (consumer, _) = dead(&harness, 2).await;
    drop(consumer);
    let unknown = LetterSelection { group: Some(Group::new("nobody").unwrap()), ..all() };
    let refusal = harness.bus.redrive(&orders(), unknown).await.unwrap_err();
    assert_eq!(refusal.code, ErrorCode::UnknownGroup);
    harness.bus.delete_group(&orders(), &billing()).await.unwrap();
    assert_eq!(redrive(&harness, all()).await, (0, 2));
    let refusal = harness.bus.redrive(&named("other"), all()).await.unwrap_err();
    assert_eq!(refusal.code, ErrorCode::UnknownTopic);
    // A group of that name gets nothing of the old one.
    let consumer =
        harness.consumer(SubscribeOptions { start: StartAt::Latest, ..at_most(9) }).await;
    assert!(consumer.next_within(NEVER).await.is_none());
}

/// Positions start again in a topic that was deleted: a letter from before must not fetch another event.
#[tokio::test(start_paused = true)]
async fn letters_from_before_a_deletion_are_not_mixed_up() {
    let harness = Harness::new();
    let (consumer, _) = dead(&harness, 2).await;
    drop(consumer);
    harness.bus.delete_topic(&orders()).await.unwrap();
    harness.publish(&orders(), 3).await;
    let consumer = harness.consumer(at_most(100)).await;
    consumer.ack(ids(&consumer.arrived().await)).await;
    let done = redrive(&harness, all()).await;
    let delivered = consumer.arrived().await;
    assert_eq!((done, delivered.len()), ((0, 2), 0));
}

#[tokio::test(start_paused = true)]
async fn a_deleted_topic_of_dead_letters_leaves_no_records() {
    let harness = Harness::new();
    let (consumer, _) = dead(&harness, 2).await;
    redrive(&harness, all()).await;
    consumer.ack(ids(&consumer.arrived().await)).await;
    harness.bus.delete_topic(&named("dlq.orders")).await.unwrap();
    // The positions of new letters are those of old ones, and these are forgotten.
    harness.publish(&orders(), 2).await;
    give_up(&consumer, &consumer.arrived().await).await;
    assert_eq!(redrive(&harness, all()).await, (2, 0));
}

#[tokio::test(start_paused = true)]
async fn dropped_letters_are_neither_listed_nor_redriven() {
    let harness = Harness::new();
    let (consumer, ids) = dead(&harness, 3).await;
    let dropped = harness.bus.drop_letters(&orders(), with_ids(&ids[..1])).await.unwrap();
    assert_eq!((dropped.dropped, dropped.next), (1, None));
    assert_eq!(list(&harness).await.letters.len(), 2);
    assert_eq!(redrive(&harness, with_ids(&ids[1..2])).await, (1, 0));
    // The copy of the event that is being redriven stays.
    assert_eq!(harness.bus.drop_letters(&orders(), all()).await.unwrap().dropped, 2);
    assert_eq!(list(&harness).await.letters.len(), 0);
    assert_eq!(harness.dead_letters().await.len(), 2);
    assert_eq!(redrive(&harness, all()).await, (0, 0));
    let delivered = consumer.arrived().await;
    assert_eq!(seqs(&delivered), [2]);
    consumer.ack(self::ids(&delivered)).await;
    assert_eq!(harness.bus.drop_letters(&orders(), all()).await.unwrap().dropped, 0);
    assert_eq!(harness.dead_letters().await.len(), 0);
    let left = harness.engine.scan(b"letter/", None, 10).await.unwrap();
    assert_eq!(left.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn letters_are_listed_page_by_page_and_by_group() {
    let harness = Harness::new();
    let mail = harness.consumer_of("mail", at_most(100)).await;
    let (_consumer, _) = dead(&harness, 5).await;
    give_up(&mail, &mail.arrived().await[..2]).await;
    // Anybody may publish there.
    harness.publish(&named("dlq.orders"), 1).await;
    let mut selection = LetterSelection { group: Some(billing()), limit: 2, ..all() };
    let mut seen = Vec::new();
    loop {
        let page = harness.bus.dead_letters(&orders(), selection.clone()).await.unwrap();
        assert!(page.letters.len() <= 2);
        seen.extend(page.letters.iter().map(|letter| letter.seq.0));
        match page.next {
            Some(next) => selection.after = Some(next),
            None => break,
        }
    }
    assert_eq!(seen, [1, 2, 3, 4, 5]);
    let page = list(&harness).await;
    assert_eq!((page.letters.len(), page.next), (7, None));
    let letter = &page.letters[0];
    assert_eq!((letter.error.as_str(), letter.attempts), ("poison", 1));
    let missing = LetterSelection { after: Some(EventId::new("nobody").unwrap()), ..all() };
    let refusal = harness.bus.dead_letters(&orders(), missing).await.unwrap_err();
    assert_eq!(refusal.code, ErrorCode::UnknownId);
    let refusal = harness.bus.dead_letters(&named("other"), all()).await.unwrap_err();
    assert_eq!(refusal.code, ErrorCode::UnknownTopic);
    harness.publish(&named("other"), 1).await;
    assert_eq!(harness.bus.dead_letters(&named("other"), all()).await.unwrap().letters.len(), 0);
}

/// Clients may publish to topics of dead letters, if their token allows it.
#[tokio::test(start_paused = true)]
async fn forged_letters_bring_no_event_of_their_own() {
    let harness = Harness::new();
    let (consumer, ids) = dead(&harness, 2).await;
    harness.bus.purge_topic(&orders(), Purge::BeforeSeq(Seq(2))).await.unwrap();
    let original = |topic: &str, seq: u64, id: &str| {
        format!(r#"{{"seq":{seq},"id":"{id}","ts":1,"topic":"{topic}","payload":"forged"}}"#)
    };
    let gone = ids[0].to_string();
    for (topic, original) in [
        ("orders", original("orders", 0, "forged")),
        ("orders", original("orders", u64::MAX, "forged")),
        ("orders", original("orders", 3, "forged")),
        ("orders", original("other", 1, "forged")),
        ("other", original("orders", 1, "forged")),
        // The id in the letter is not that of its cause.
        ("orders", original("orders", 1, &gone)),
    ] {
        let payload = format!(
            r#"{{"topic":"{topic}","group":"billing","original":{original},"err":"","ts":1,"attempts":4294967295}}"#
        );
        let mut letter = event(&payload);
        letter.caused_by = vec![EventId::new("forged").unwrap()];
        let events = vec![letter];
        harness.try_publish(&harness.bus.connect(), &named("dlq.orders"), events).await.unwrap();
    }
    assert_eq!(list(&harness).await.letters.len(), 7, "that of another topic is none");
    assert_eq!(redrive(&harness, all()).await, (2, 5));
    let delivered = consumer.arrived().await;
    assert_eq!(self::ids(&delivered), ids);
}

/// The group was to get the event from the log again, and retention was faster.
#[tokio::test(start_paused = true)]
async fn an_event_that_the_log_loses_before_it_is_delivered_comes_from_its_letter() {
    let harness = Harness::new();
    let (consumer, _) = dead(&harness, 2).await;
    drop(consumer);
    let options = SeekOptions::default();
    harness.bus.seek_group(&orders(), &billing(), &StartAt::Earliest, options).await.unwrap();
    assert_eq!(redrive(&harness, with_letter(&harness, 1).await).await, (1, 0));
    harness.bus.purge_topic(&orders(), Purge::All).await.unwrap();
    let consumer = harness.consumer(at_most(100)).await;
    let delivered = consumer.arrived().await;
    assert_eq!(seqs(&delivered), [2]);
    consumer.ack(ids(&delivered)).await;
    let left = harness.engine.scan(b"redrive/", None, 10).await.unwrap();
    assert_eq!(left.len(), 0);
}

async fn with_letter(harness: &Harness, index: usize) -> LetterSelection {
    let id = list(harness).await.letters[index].id.clone();
    with_ids(&[id])
}

/// An older event is open, so that the redriven one is above the floor.
#[tokio::test(start_paused = true)]
async fn a_redriven_event_above_the_floor_survives_the_loss_of_its_topic() {
    let harness = Harness::new();
    harness.publish(&orders(), 2).await;
    let consumer = harness.consumer(at_most(100)).await;
    let delivered = consumer.arrived().await;
    give_up(&consumer, &delivered[1..]).await;
    drop(consumer);
    assert_eq!(redrive(&harness, all()).await, (1, 0));
    harness.bus.purge_topic(&orders(), Purge::All).await.unwrap();
    let consumer = harness.consumer(at_most(100)).await;
    assert_eq!(seqs(&consumer.arrived().await), [2]);
}

/// A group that was created after the letter is not the one that failed.
#[tokio::test(start_paused = true)]
async fn letters_of_a_deleted_group_are_not_for_the_next_one_of_its_name() {
    let harness = Harness::new();
    let (consumer, _) = dead(&harness, 2).await;
    harness.bus.delete_group(&orders(), &billing()).await.unwrap();
    drop(consumer);
    harness.pass(Duration::from_secs(1)).await;
    let consumer = harness.consumer(at_most(100)).await;
    consumer.ack(ids(&consumer.arrived().await)).await;
    assert_eq!(redrive(&harness, all()).await, (0, 2));
    assert!(consumer.next_within(NEVER).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn requests_with_the_same_end_leave_out_what_came_meanwhile() {
    let harness = Harness::new();
    let (consumer, _) = dead(&harness, 4).await;
    let two = LetterSelection { limit: 2, ..all() };
    let first = harness.bus.redrive(&orders(), two.clone()).await.unwrap();
    assert_eq!((first.redriven, first.end), (2, Seq(5)));
    give_up(&consumer, &consumer.arrived().await).await;
    assert_eq!(list(&harness).await.letters.len(), 6);
    let rest = LetterSelection { after: first.next, before: Some(first.end), ..all() };
    assert_eq!(redrive(&harness, rest).await, (2, 0));
    // Likewise, and what was not selected stays.
    let behind = with_letter(&harness, 1).await.ids.unwrap().remove(0);
    let some = LetterSelection { after: Some(behind), before: Some(Seq(5)), ..all() };
    let dropped = harness.bus.drop_letters(&orders(), some).await.unwrap();
    assert_eq!(dropped.dropped, 2);
    let left: Vec<_> = list(&harness).await.letters.iter().map(|letter| letter.seq.0).collect();
    assert_eq!(left, [1, 2, 5, 6]);
}

/// The topic lost the event that failed, and has another one under its id.
#[tokio::test(start_paused = true)]
async fn a_letter_does_not_stand_for_a_later_event_of_the_same_id() {
    let harness = Harness::new();
    let (consumer, event_ids) = dead(&harness, 1).await;
    harness.bus.purge_topic(&orders(), Purge::All).await.unwrap();
    let mut later = event("\"later\"");
    later.id = Some(event_ids[0].clone());
    harness.try_publish(&harness.bus.connect(), &orders(), vec![later]).await.unwrap();
    let delivered = consumer.arrived().await;
    assert_eq!(seqs(&delivered), [2]);
    consumer.ack(ids(&delivered)).await;
    assert_eq!(redrive(&harness, all()).await, (1, 0));
    assert_eq!(seqs(&consumer.arrived().await), [1]);
}

/// A letter without a copy must not stand for one that has it.
#[tokio::test(start_paused = true)]
async fn two_letters_of_one_event_are_redriven_one_after_the_other() {
    let harness = Harness::new();
    let event_ids = harness.publish(&orders(), 1).await;
    let payload =
        r#"{"topic":"orders","group":"billing","original":null,"err":"","ts":1700000000000}"#;
    let mut forged = event(payload);
    forged.caused_by = event_ids;
    let dead_letters = named("dlq.orders");
    let consumer = harness.consumer(at_most(100)).await;
    harness.try_publish(&harness.bus.connect(), &dead_letters, vec![forged]).await.unwrap();
    give_up(&consumer, &consumer.arrived().await).await;
    assert_eq!(redrive(&harness, all()).await, (1, 1));
    consumer.ack(ids(&consumer.arrived().await)).await;
    assert_eq!(redrive(&harness, all()).await, (1, 1));
    assert_eq!(consumer.arrived().await.len(), 1);
}

/// Far more than a group works on at a time.
#[tokio::test(start_paused = true)]
async fn thousands_of_letters_are_redriven_with_bounded_memory() {
    const COUNT: usize = 3000;
    let harness = Harness::new();
    harness.publish(&orders(), COUNT).await;
    let consumer = harness.consumer(at_most(10_000)).await;
    let mut dead = 0;
    while dead < COUNT {
        let delivered = consumer.arrived().await;
        dead += delivered.len();
        give_up(&consumer, &delivered).await;
    }
    while harness.dead_letters().await.len() < COUNT {
        settle().await;
    }
    let (mut selection, mut total) = (all(), 0);
    loop {
        let done = harness.bus.redrive(&orders(), selection.clone()).await.unwrap();
        total += done.redriven;
        match done.next {
            Some(next) => selection.after = Some(next),
            None => break,
        }
    }
    assert_eq!(total, COUNT as u64);
    let mut handled = Vec::new();
    while handled.len() < COUNT {
        let details = harness.bus.group_details(&orders(), &billing()).await.unwrap();
        assert_eq!(details.redriving, (COUNT - handled.len()) as u64);
        let delivered = consumer.arrived().await;
        assert!((1..=1000).contains(&delivered.len()), "{}", delivered.len());
        handled.extend(seqs(&delivered));
        consumer.ack(ids(&delivered)).await;
    }
    handled.sort_unstable();
    assert!(handled.into_iter().eq(1..=COUNT as u64));
    assert!(consumer.next_within(NEVER).await.is_none());
}

/// The log delivers the event again by itself: it must not come twice.
#[tokio::test(start_paused = true)]
async fn a_group_that_goes_back_gets_a_redriven_event_once() {
    let harness = Harness::new();
    let (consumer, _) = dead(&harness, 2).await;
    drop(consumer);
    redrive(&harness, all()).await;
    let options = SeekOptions::default();
    harness.bus.seek_group(&orders(), &billing(), &StartAt::Earliest, options).await.unwrap();
    let consumer = harness.consumer(at_most(100)).await;
    let delivered = consumer.arrived().await;
    assert_eq!(seqs(&delivered), [1, 2]);
    consumer.ack(ids(&delivered)).await;
    drop(consumer);
    let harness = harness.restart();
    let consumer = harness.consumer(at_most(100)).await;
    assert!(consumer.next_within(NEVER).await.is_none());
    let left = harness.engine.scan(b"redrive/", None, 10).await.unwrap();
    assert_eq!(left.len(), 0);
    let page = harness.engine.read(&orders(), Seq(1), ReadBudget::of_events(9)).await.unwrap();
    assert_eq!(page.events.len(), 2);
}
