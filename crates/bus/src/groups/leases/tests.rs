use super::*;

mod model;

const ANN: MemberId = MemberId(1);
const BEN: MemberId = MemberId(2);
const TIMEOUT: Duration = Duration::from_secs(30);

fn fresh() -> Leases {
    Leases::resume(&Cursor::starting_behind(Seq::ZERO, Timestamp(7)))
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

fn restarted(leases: &Leases) -> Leases {
    Leases::resume(&Cursor::decode(&leases.cursor().encode()).unwrap())
}

fn above(leases: &Leases) -> Vec<Progress> {
    leases.cursor().above().collect()
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
        [Progress::Tried(1), Progress::Done, Progress::Tried(1), Progress::Done]
    );
    leases.begin_ack(Seq(1));
    assert_eq!(leases.floor(), Seq(0), "an ACK that is not stored does not count");
    assert_eq!(leases.cursor().floor, Seq(2), "but the cursor that stores it counts it");
    leases.finish(Seq(1));
    assert_eq!(leases.floor(), Seq(2));
    let cursor = leases.cursor();
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
    let failed = leases.fail(Seq(1), 5, None).unwrap();
    assert_eq!(
        failed,
        FailedLease { seq: Seq(1), member: ANN, attempts: 1, next: AfterFailure::Redeliver }
    );
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
    leases.fail(Seq(2), 5, None);
    assert_eq!(leases.expire_due_leases(now + TIMEOUT * 2), []);
    assert_eq!(leases.next_timer(), Some(now + TIMEOUT * 3));
    assert_eq!(leases.expire_due_leases(now + TIMEOUT * 3), [(Seq(1), ANN)]);
}

#[test]
fn failed_events_back_off_and_are_redelivered_in_order() {
    let now = Instant::now();
    let mut leases = leased_to_ann(3, now);
    leases.fail(Seq(3), 5, None);
    leases.fail(Seq(1), 5, Some(now + Duration::from_secs(1)));
    assert_eq!(leases.first_redelivery(), Some(Seq(3)));
    assert_eq!(leases.expire_due_leases(now + Duration::from_secs(1)), []);
    assert_eq!(leases.first_redelivery(), Some(Seq(1)));
    assert!(leases.is_redeliverable(Seq(1)) && !leases.is_redeliverable(Seq(2)));
}

#[test]
fn the_last_failed_attempt_dead_letters_the_event() {
    let now = Instant::now();
    let mut leases = leased_to_ann(1, now);
    let rest = Some(now + Duration::from_secs(1));
    assert_eq!(leases.fail(Seq(1), 1, rest).unwrap().next, AfterFailure::DeadLetter);
    assert_eq!(leases.first_redelivery(), None);
    assert_eq!(leases.expire_due_leases(now + TIMEOUT * 2), []);
    assert_eq!(leases.cursor().floor, Seq(0), "it is done once its letter is stored");
    leases.begin_dead_letter(Seq(1));
    assert_eq!(leases.cursor().floor, Seq(1));
    leases.undo_dead_letter(Seq(1));
    assert_eq!(leases.cursor().floor, Seq(0));
    leases.begin_dead_letter(Seq(1));
    leases.finish(Seq(1));
    assert_eq!(leases.floor(), Seq(1));
}

#[test]
fn a_lease_fails_once() {
    let mut leases = leased_to_ann(1, Instant::now());
    assert!(leases.fail(Seq(1), 5, None).is_some());
    assert_eq!(leases.fail(Seq(1), 5, None), None);
    assert_eq!(leases.fail(Seq(9), 5, None), None);
}

#[test]
fn a_revoked_unsent_delivery_counts_as_no_attempt() {
    let now = Instant::now();
    let mut leases = leased_to_ann(1, now);
    assert!(leases.revoke_unsent(Seq(1), ANN, 1));
    assert_eq!((leases.attempts(Seq(1)), leases.in_flight()), (0, 0));
    assert!(!leases.revoke_unsent(Seq(1), ANN, 1));
    assert_eq!(lease(&mut leases, Seq(1), BEN, now), 1);
}

#[test]
fn only_the_matching_delivery_is_revoked() {
    let now = Instant::now();
    let mut leases = leased_to_ann(1, now);
    leases.fail(Seq(1), 5, None);
    lease(&mut leases, Seq(1), BEN, now);
    assert!(!leases.revoke_unsent(Seq(1), ANN, 1));
    assert_eq!(leases.leased_to(BEN, &id_of(Seq(1))), Some(Seq(1)));
    leases.fail(Seq(1), 5, None);
    lease(&mut leases, Seq(1), ANN, now);
    assert!(!leases.revoke_unsent(Seq(1), ANN, 1), "that was an earlier delivery");
    assert!(leases.revoke_unsent(Seq(1), ANN, 3));
}

#[test]
fn attempts_and_finished_events_survive_a_restart() {
    let now = Instant::now();
    let mut leases = leased_to_ann(4, now);
    leases.fail(Seq(1), 5, None);
    lease(&mut leases, Seq(1), BEN, now);
    leases.begin_ack(Seq(3));
    leases.finish(Seq(3));
    let mut leases = restarted(&leases);
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
    leases.fail(Seq(2), 5, None);
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
    assert_eq!(leases.cursor().last_id, None, "the group never had the event at the floor");
}

#[test]
fn an_id_published_again_after_a_trim_stands_for_the_newer_event() {
    let now = Instant::now();
    let mut leases = fresh();
    let lease = Lease { member: ANN, leased_at: now, deadline: now + TIMEOUT };
    for seq in 1..=3 {
        leases.lease(Seq(seq), &id("same"), Timestamp(1), lease);
    }
    leases.fail(Seq(1), 5, None);
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
    let cursor = Cursor::starting_behind(Seq(u64::MAX / 2), Timestamp(u64::MAX)).with_above(
        (0..MAX_WINDOW).map(|place| match place % 2 {
            0 => Progress::Tried(u32::MAX),
            _ => Progress::Done,
        }),
    );
    assert!(cursor.encode().len() <= MAX_STATE_VALUE_BYTES);
}

#[test]
fn the_back_off_doubles_from_100_ms_to_30_s() {
    let rests: Vec<_> = (0..12).map(|attempt| back_off(attempt).as_millis()).collect();
    assert_eq!(rests, [100, 100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]);
    assert_eq!(back_off(u32::MAX), Duration::from_secs(30));
}

#[test]
fn a_redelivery_waits_until_the_last_attempt_is_recorded() {
    let now = Instant::now();
    let mut leases = fresh();
    let before = leases.begin_generation();
    lease_unrecorded(&mut leases, Seq(1), ANN, now);
    assert!(!leases.awaits_record());
    leases.fail(Seq(1), 9, None).unwrap();
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
    leases.fail(Seq(1), 9, Some(now + TIMEOUT)).unwrap();
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
