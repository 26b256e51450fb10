use super::*;
use crate::groups::retry::RetryDelays;

mod model;

const ANN: MemberId = MemberId(1);
const BEN: MemberId = MemberId(2);
const TIMEOUT: Duration = Duration::from_secs(30);

const MAX_ATTEMPTS: u32 = 5;
const RULES: RetryRules = RetryRules {
    delays: RetryDelays { first: Duration::from_secs(1), factor: 5, max: Duration::from_secs(60) },
    max_attempts: MAX_ATTEMPTS,
};
const AT_ONCE: LeaseEnd = LeaseEnd::Failed { delay: Some(Duration::ZERO) };
const BACK_OFF: LeaseEnd = LeaseEnd::Failed { delay: None };

fn fresh() -> Leases {
    Leases::resume(&Cursor::starting_behind(Seq::ZERO, Timestamp(7)), RULES, at(Instant::now()))
}

/// The moment `now`, on a wall clock that stands still.
fn at(now: Instant) -> Moment {
    Moment { instant: now, timestamp: Timestamp(1_700_000_000_000) }
}

fn id(name: &str) -> EventId {
    EventId::new(name).unwrap()
}

fn id_of(seq: Seq) -> EventId {
    id(&format!("e{seq}"))
}

fn lease_unrecorded(leases: &mut Leases, seq: Seq, member: MemberId, now: Instant) -> u32 {
    let lease = Lease { member, leased_at: now, deadline: now + TIMEOUT };
    leases.lease(seq, &id_of(seq), Timestamp(1000 + seq.0), lease)
}

/// Leases `seq` and stores the cursor that counts the attempt.
fn lease(leases: &mut Leases, seq: Seq, member: MemberId, now: Instant) -> u32 {
    let attempt = lease_unrecorded(leases, seq, member, now);
    let generation = leases.begin_generation();
    leases.generation_stored(generation);
    attempt
}

/// A lease table with the events 1 to `count` leased to Ann.
fn leased_to_ann(count: u64, now: Instant) -> Leases {
    let mut leases = fresh();
    for seq in 1..=count {
        assert_eq!(lease(&mut leases, Seq(seq), ANN, now), 1);
    }
    leases
}

fn restarted(leases: &Leases, now: Moment) -> Leases {
    Leases::resume(&Cursor::decode(&leases.cursor(now).encode()).unwrap(), leases.rules, now)
}

fn cursor(leases: &Leases) -> Cursor {
    leases.cursor(at(Instant::now()))
}

fn above(leases: &Leases) -> Vec<Progress> {
    cursor(leases).above().collect()
}

#[test]
fn the_floor_rises_over_finished_events_only() {
    let mut leases = leased_to_ann(4, Instant::now());
    for seq in [2, 4] {
        leases.begin_ack(Seq(seq));
        leases.finish(Seq(seq));
    }
    assert_eq!(leases.floor(), Seq(0));
    assert_eq!(
        above(&leases),
        [
            Progress::Tried(Attempts::of_deliveries(1)),
            Progress::Done,
            Progress::Tried(Attempts::of_deliveries(1)),
            Progress::Done
        ]
    );
    leases.begin_ack(Seq(1));
    assert_eq!(leases.floor(), Seq(0), "an ACK that is not stored does not count");
    assert_eq!(cursor(&leases).floor, Seq(2), "but the cursor that stores it counts it");
    leases.finish(Seq(1));
    assert_eq!(leases.floor(), Seq(2));
    let cursor = cursor(&leases);
    assert_eq!(cursor.last_id, Some(id_of(Seq(2))));
    assert_eq!(cursor.last_ts, Some(Timestamp(1002)));
    assert_eq!(cursor.created, Timestamp(7));
    leases.begin_ack(Seq(3));
    leases.finish(Seq(3));
    assert_eq!((leases.floor(), leases.next_new()), (Seq(4), Seq(5)));
}

#[test]
fn a_lease_belongs_to_one_member() {
    let mut leases = leased_to_ann(1, Instant::now());
    assert_eq!(leases.leased_to(ANN, &id_of(Seq(1))), Some(Seq(1)));
    assert_eq!(leases.leased_to(BEN, &id_of(Seq(1))), None);
    assert_eq!(leases.leased_to(ANN, &id("another")), None);
    leases.begin_ack(Seq(1));
    assert_eq!(leases.leased_to(ANN, &id_of(Seq(1))), None, "it is acknowledged once");
    assert_eq!(leases.in_flight(), 0);
}

#[test]
fn an_ack_that_was_not_stored_restores_the_lease() {
    let now = Instant::now();
    let mut leases = leased_to_ann(1, now);
    leases.begin_ack(Seq(1));
    assert_eq!(leases.undo_ack(Seq(1)), Some(ANN));
    assert_eq!(leases.leased_to(ANN, &id_of(Seq(1))), Some(Seq(1)));
    assert_eq!(leases.undo_ack(Seq(1)), None, "there is nothing to undo");
    assert_eq!(leases.expire_due_leases(now + TIMEOUT), [(Seq(1), ANN)]);
}

#[test]
fn leases_expire_at_their_deadline_and_not_before() {
    let now = Instant::now();
    let mut leases = leased_to_ann(1, now);
    assert_eq!(leases.next_timer(), Some(now + TIMEOUT));
    assert_eq!(leases.expire_due_leases(now + TIMEOUT - Duration::from_nanos(1)), []);
    assert_eq!(leases.expire_due_leases(now + TIMEOUT), [(Seq(1), ANN)]);
    let ended = leases.end(Seq(1), AT_ONCE, now).unwrap();
    let attempts = Attempts { deliveries: 1, failures: 1, disconnects: 0 };
    let next = AfterLease::Redeliver;
    assert_eq!(ended, EndedLease { seq: Seq(1), member: ANN, attempts, next });
    assert_eq!(leases.first_redelivery(), Some(Seq(1)));
    assert_eq!(lease(&mut leases, Seq(1), BEN, now), 2);
}

#[test]
fn extending_moves_the_deadline_both_ways() {
    let now = Instant::now();
    let mut leases = leased_to_ann(2, now);
    leases.extend(Seq(1), now + TIMEOUT * 3);
    leases.extend(Seq(2), now + TIMEOUT / 3);
    assert_eq!(leases.expire_due_leases(now + TIMEOUT / 3), [(Seq(2), ANN)]);
    leases.end(Seq(2), AT_ONCE, now);
    assert_eq!(leases.expire_due_leases(now + TIMEOUT * 2), []);
    assert_eq!(leases.next_timer(), Some(now + TIMEOUT * 3));
    assert_eq!(leases.expire_due_leases(now + TIMEOUT * 3), [(Seq(1), ANN)]);
}

#[test]
fn failed_events_back_off_and_are_redelivered_in_order() {
    let now = Instant::now();
    let mut leases = leased_to_ann(3, now);
    leases.end(Seq(3), AT_ONCE, now);
    leases.end(Seq(1), BACK_OFF, now);
    assert_eq!(leases.first_redelivery(), Some(Seq(3)));
    assert_eq!(leases.expire_due_leases(now + Duration::from_secs(1)), []);
    assert_eq!(leases.first_redelivery(), Some(Seq(1)));
    assert!(leases.is_redeliverable(Seq(1)) && !leases.is_redeliverable(Seq(2)));
}

#[test]
fn the_last_failed_attempt_dead_letters_the_event() {
    let now = Instant::now();
    let mut leases = leased_to_ann(1, now);
    for _ in 1..MAX_ATTEMPTS {
        assert_eq!(leases.end(Seq(1), AT_ONCE, now).unwrap().next, AfterLease::Redeliver);
        lease(&mut leases, Seq(1), ANN, now);
    }
    assert_eq!(leases.end(Seq(1), BACK_OFF, now).unwrap().next, AfterLease::DeadLetter);
    assert_eq!(leases.first_redelivery(), None);
    assert_eq!(leases.expire_due_leases(now + TIMEOUT * 2), []);
    assert_eq!(cursor(&leases).floor, Seq(0), "it is done once its letter is stored");
    leases.begin_dead_letter(Seq(1));
    assert_eq!(cursor(&leases).floor, Seq(1));
    leases.undo_dead_letter(Seq(1));
    assert_eq!(cursor(&leases).floor, Seq(0));
    leases.begin_dead_letter(Seq(1));
    leases.finish(Seq(1));
    assert_eq!(leases.floor(), Seq(1));
}

#[test]
fn a_lease_ends_once() {
    let now = Instant::now();
    let mut leases = leased_to_ann(1, now);
    assert!(leases.end(Seq(1), AT_ONCE, now).is_some());
    assert_eq!(leases.end(Seq(1), AT_ONCE, now), None);
    assert_eq!(leases.end(Seq(9), AT_ONCE, now), None);
}

#[test]
fn a_revoked_unsent_delivery_counts_as_no_attempt() {
    let now = Instant::now();
    let mut leases = leased_to_ann(1, now);
    assert!(leases.revoke_unsent(Seq(1), ANN, 1));
    assert_eq!((leases.deliveries(Seq(1)), leases.in_flight()), (0, 0));
    assert!(!leases.revoke_unsent(Seq(1), ANN, 1));
    assert_eq!(lease(&mut leases, Seq(1), BEN, now), 1);
}

#[test]
fn only_the_matching_delivery_is_revoked() {
    let now = Instant::now();
    let mut leases = leased_to_ann(1, now);
    leases.end(Seq(1), AT_ONCE, now);
    lease(&mut leases, Seq(1), BEN, now);
    assert!(!leases.revoke_unsent(Seq(1), ANN, 1));
    assert_eq!(leases.leased_to(BEN, &id_of(Seq(1))), Some(Seq(1)));
    leases.end(Seq(1), AT_ONCE, now);
    lease(&mut leases, Seq(1), ANN, now);
    assert!(!leases.revoke_unsent(Seq(1), ANN, 1), "that was an earlier delivery");
    assert!(leases.revoke_unsent(Seq(1), ANN, 3));
}

#[test]
fn attempts_and_finished_events_survive_a_restart() {
    let now = Instant::now();
    let mut leases = leased_to_ann(4, now);
    leases.end(Seq(1), AT_ONCE, now);
    lease(&mut leases, Seq(1), BEN, now);
    leases.begin_ack(Seq(3));
    leases.finish(Seq(3));
    let mut leases = restarted(&leases, at(now));
    assert_eq!((leases.floor(), leases.in_flight()), (Seq(0), 0));
    assert_eq!(leases.first_redelivery(), Some(Seq(1)));
    assert!(!leases.is_redeliverable(Seq(3)));
    assert_eq!(lease(&mut leases, Seq(1), ANN, now), 3);
    assert_eq!(lease(&mut leases, Seq(2), ANN, now), 2);
    assert_eq!(leases.first_redelivery(), Some(Seq(4)));
    assert_eq!(leases.next_new(), Seq(5));
}

#[test]
fn trimmed_events_are_done_even_while_leased() {
    let now = Instant::now();
    let mut leases = leased_to_ann(4, now);
    leases.begin_ack(Seq(1));
    leases.end(Seq(2), AT_ONCE, now);
    leases.trim_below(Seq(4));
    assert_eq!(leases.floor(), Seq(3));
    assert_eq!(leases.take_trimmed(), [ANN], "only event 3 was still leased");
    assert_eq!(leases.take_trimmed(), []);
    assert_eq!(leases.first_redelivery(), None);
    assert_eq!(leases.in_flight(), 1);
    leases.finish(Seq(1));
    assert_eq!(leases.undo_ack(Seq(1)), None);
    assert_eq!(leases.leased_to(ANN, &id_of(Seq(4))), Some(Seq(4)));
    leases.trim_below(Seq(1000));
    assert_eq!((leases.floor(), leases.next_new()), (Seq(999), Seq(1000)));
    assert_eq!(cursor(&leases).last_id, None, "the group never had the event at the floor");
}

#[test]
fn an_id_published_again_after_a_trim_stands_for_the_newer_event() {
    let now = Instant::now();
    let mut leases = fresh();
    let lease = Lease { member: ANN, leased_at: now, deadline: now + TIMEOUT };
    for seq in 1..=3 {
        leases.lease(Seq(seq), &id("same"), Timestamp(1), lease);
    }
    leases.end(Seq(1), AT_ONCE, now);
    assert_eq!(leases.leased_to(ANN, &id("same")), Some(Seq(3)));
    leases.trim_below(Seq(3));
    assert_eq!(leases.leased_to(ANN, &id("same")), Some(Seq(3)));
}

#[test]
fn unreadable_events_are_skipped_as_far_as_the_window_has_room() {
    let now = Instant::now();
    let mut leases = fresh();
    leases.skip_unreadable(Seq(3));
    assert_eq!((leases.floor(), leases.next_new()), (Seq(3), Seq(4)));
    lease(&mut leases, Seq(4), ANN, now);
    leases.skip_unreadable(Seq(1_000_000));
    assert_eq!(leases.floor(), Seq(3));
    assert!(!leases.has_room());
    assert_eq!(leases.next_new(), Seq(4 + MAX_WINDOW as u64));
    leases.begin_ack(Seq(4));
    leases.finish(Seq(4));
    assert!(leases.has_room());
    assert_eq!(leases.next_new(), Seq(4 + MAX_WINDOW as u64));
}

#[test]
fn the_largest_window_fits_into_a_state_value() {
    use prombus_proto::limits::MAX_STATE_VALUE_BYTES;
    let attempts =
        |deliveries, counts| Attempts { deliveries, failures: counts, disconnects: counts };
    let cursor = Cursor::starting_behind(Seq(u64::MAX / 2), Timestamp(u64::MAX)).with_above(
        (0..MAX_WINDOW).map(|place| match place % 2 {
            0 => Progress::Tried(attempts(u32::MAX - 1, u16::MAX)),
            _ => Progress::Tried(attempts(u32::MAX - 2, u16::MAX - 1)),
        }),
    );
    let encoded = cursor.encode();
    assert!(encoded.len() <= MAX_STATE_VALUE_BYTES);
    let progress = Cursor::decode(&encoded).unwrap();
    let forgotten = Progress::Tried(attempts(u32::MAX - 1, 0));
    assert_eq!(progress.above().next(), Some(forgotten), "attempts never count backwards");
}

/// Ends the lease of `seq`, lets its back-off pass and leases it again. Returns the length of the back-off.
fn end_and_lease(leases: &mut Leases, seq: Seq, end: LeaseEnd, now: &mut Instant) -> Duration {
    let ended = leases.end(seq, end, *now).unwrap();
    assert_eq!(ended.next, AfterLease::Redeliver);
    let before = *now;
    while !leases.is_redeliverable(seq) {
        *now = leases.next_timer().unwrap();
        leases.expire_due_leases(*now);
    }
    lease(leases, seq, BEN, *now);
    *now - before
}

#[test]
fn failures_and_disconnects_back_off() {
    let mut now = Instant::now();
    let mut leases = leased_to_ann(1, now);
    leases.set_max_attempts(10);
    let mut spans = |end| -> Vec<u64> {
        (0..5).map(|_| end_and_lease(&mut leases, Seq(1), end, &mut now).as_secs()).collect()
    };
    assert_eq!(spans(LeaseEnd::Released), [0; 5]);
    assert_eq!(
        spans(LeaseEnd::Disconnected),
        [0, 1, 5, 25, 60],
        "the first is redelivered at once"
    );
    assert_eq!(spans(BACK_OFF), [1, 5, 25, 60, 60]);
}

#[test]
fn only_failures_count_towards_a_dead_letter() {
    let mut now = Instant::now();
    let mut leases = leased_to_ann(1, now);
    for end in [LeaseEnd::Released, LeaseEnd::Disconnected] {
        for _ in 0..3 * MAX_ATTEMPTS {
            end_and_lease(&mut leases, Seq(1), end, &mut now);
        }
    }
    for _ in 1..MAX_ATTEMPTS {
        end_and_lease(&mut leases, Seq(1), LeaseEnd::DisconnectedAlone, &mut now);
    }
    let last = leases.end(Seq(1), LeaseEnd::DisconnectedAlone, now).unwrap();
    assert_eq!(last.next, AfterLease::DeadLetter);
    assert_eq!(last.attempts.failures, 5);
}

#[test]
fn an_event_that_is_given_up_is_dead_lettered_at_its_first_attempt() {
    let now = Instant::now();
    let mut leases = leased_to_ann(1, now);
    assert_eq!(leases.end(Seq(1), LeaseEnd::GivenUp, now).unwrap().next, AfterLease::DeadLetter);
}

#[test]
fn an_event_on_many_lost_connections_becomes_a_suspect_and_stays_one() {
    let mut now = Instant::now();
    let mut leases = leased_to_ann(2, now);
    for _ in 1..MAX_ATTEMPTS {
        end_and_lease(&mut leases, Seq(2), LeaseEnd::Disconnected, &mut now);
    }
    leases.end(Seq(2), LeaseEnd::Disconnected, now);
    now += Duration::from_secs(3600);
    leases.begin_ack(Seq(1));
    leases.expire_due_leases(now);
    assert_eq!((leases.first_redelivery(), leases.first_suspect()), (None, Some(Seq(2))));
    assert!(leases.is_redeliverable(Seq(2)));
    // A higher limit clears it, a lower one makes it a suspect again.
    leases.set_max_attempts(6);
    assert_eq!((leases.first_redelivery(), leases.first_suspect()), (Some(Seq(2)), None));
    leases.set_max_attempts(2);
    assert_eq!((leases.first_redelivery(), leases.first_suspect()), (None, Some(Seq(2))));
    let mut leases = restarted(&leases, at(now));
    assert_eq!(leases.first_suspect(), Some(Seq(2)), "a restart remembers it");
    lease(&mut leases, Seq(2), ANN, now);
    assert_eq!(leases.first_suspect(), None);
    assert!(leases.revoke_unsent(Seq(2), ANN, 6));
    assert_eq!(leases.first_suspect(), Some(Seq(2)));
    leases.trim_below(Seq(3));
    assert_eq!(leases.first_suspect(), None);
}

#[test]
fn an_event_that_failed_more_often_than_a_lowered_limit_is_delivered_once_more() {
    let mut now = Instant::now();
    let mut leases = leased_to_ann(1, now);
    for _ in 0..3 {
        end_and_lease(&mut leases, Seq(1), BACK_OFF, &mut now);
    }
    leases.end(Seq(1), AT_ONCE, now);
    leases.set_max_attempts(1);
    assert_eq!(leases.first_redelivery(), Some(Seq(1)));
    lease(&mut leases, Seq(1), ANN, now);
    assert_eq!(leases.end(Seq(1), BACK_OFF, now).unwrap().next, AfterLease::DeadLetter);
}

#[test]
fn a_redelivery_waits_until_the_last_attempt_is_recorded() {
    let now = Instant::now();
    let mut leases = fresh();
    let before = leases.begin_generation();
    lease_unrecorded(&mut leases, Seq(1), ANN, now);
    assert!(!leases.awaits_record());
    leases.end(Seq(1), AT_ONCE, now).unwrap();
    assert_eq!(leases.first_redelivery(), None);
    assert!(leases.awaits_record(), "no new event may overtake it");
    leases.generation_stored(before);
    assert_eq!(leases.first_redelivery(), None, "an earlier cursor does not count it");
    let behind = leases.begin_generation();
    assert_eq!(leases.first_redelivery(), None, "nor does a cursor that is not stored");
    leases.generation_stored(behind);
    assert_eq!(leases.first_redelivery(), Some(Seq(1)));
    assert!(!leases.awaits_record());
    assert_eq!(lease_unrecorded(&mut leases, Seq(1), ANN, now), 2);
    // An event that backs off has to be recorded as well.
    leases.end(Seq(1), LeaseEnd::Failed { delay: Some(TIMEOUT) }, now).unwrap();
    leases.expire_due_leases(now + TIMEOUT);
    assert_eq!(leases.first_redelivery(), None);
    let generation = leases.begin_generation();
    leases.generation_stored(generation);
    assert_eq!(leases.first_redelivery(), Some(Seq(1)));
    // An unsent delivery is no attempt.
    lease_unrecorded(&mut leases, Seq(1), ANN, now);
    assert!(leases.revoke_unsent(Seq(1), ANN, 3));
    assert_eq!(leases.first_redelivery(), Some(Seq(1)));
}
