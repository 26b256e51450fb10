//! Random operations, compared with a model that keeps every event in a plain map.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::*;
use super::{BACK_OFF, RULES, id_of};
use crate::stored::cursor::ROUNDING_MS;

/// An event of the model.
#[derive(Clone, Copy, Debug)]
struct Fact {
    attempts: Attempts,
    /// Deliveries that a stored cursor counts.
    recorded: u32,
    state: SlotState,
}

impl Fact {
    fn is_redeliverable(self) -> bool {
        self.state == SlotState::Redeliverable && self.recorded >= self.attempts.deliveries
    }
}

/// Every event from the oldest unfinished one to the newest delivered.
#[derive(Debug)]
struct Model {
    max_attempts: u32,
    events: BTreeMap<u64, Fact>,
    /// Every event up to and including this one is done.
    floor: u64,
    /// The attempts in the cursor that is being stored.
    being_stored: BTreeMap<u64, u32>,
}

#[derive(Clone, Debug)]
enum Step {
    BeginGeneration,
    GenerationStored,
    Lease { member: u64, timeout_ms: u64 },
    Ack { pick: usize },
    Store,
    StoringFails,
    Nack { pick: usize, end: LeaseEnd },
    Tick { ms: u64 },
    Leave { member: u64, end: LeaseEnd },
    SetMaxAttempts { max_attempts: u32 },
    RevokeUnsent { pick: usize },
    Extend { pick: usize, ms: u64 },
    DeadLetter,
    Trim { further: u64 },
    SkipUnreadable { count: u64 },
    Restart,
}

fn end() -> impl Strategy<Value = LeaseEnd> {
    let delay = proptest::option::of((0..50_u64).prop_map(Duration::from_millis));
    prop_oneof![
        4 => delay.prop_map(|delay| LeaseEnd::Failed { delay }),
        3 => Just(LeaseEnd::Disconnected),
        1 => Just(LeaseEnd::DisconnectedAlone),
        1 => Just(LeaseEnd::Released),
        1 => Just(LeaseEnd::GivenUp),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let pick = 0..8_usize;
    let member = 1..4_u64;
    let step = prop_oneof![
        8 => (member.clone(), 1..100_u64)
            .prop_map(|(member, timeout_ms)| Step::Lease { member, timeout_ms }),
        4 => pick.clone().prop_map(|pick| Step::Ack { pick }),
        3 => Just(Step::Store),
        3 => Just(Step::BeginGeneration),
        3 => Just(Step::GenerationStored),
        1 => Just(Step::StoringFails),
        2 => (pick.clone(), end()).prop_map(|(pick, end)| Step::Nack { pick, end }),
        3 => (0..60_u64).prop_map(|ms| Step::Tick { ms }),
        1 => (member, end()).prop_map(|(member, end)| Step::Leave { member, end }),
        1 => (1..4_u32).prop_map(|max_attempts| Step::SetMaxAttempts { max_attempts }),
        1 => pick.clone().prop_map(|pick| Step::RevokeUnsent { pick }),
        1 => (pick, 0..100_u64).prop_map(|(pick, ms)| Step::Extend { pick, ms }),
        1 => Just(Step::DeadLetter),
        1 => (1..6_u64).prop_map(|further| Step::Trim { further }),
        1 => (1..4_u64).prop_map(|count| Step::SkipUnreadable { count }),
        1 => Just(Step::Restart),
    ];
    proptest::collection::vec(step, 1..120)
}

/// How long a back-off with `left` to go lasts after a restart: the wall clock stands still at a full second.
fn in_whole_seconds(left: Duration) -> Duration {
    let rounded_up = left.as_millis().saturating_sub(ROUNDING_MS.into()).div_ceil(1000);
    Duration::from_secs(rounded_up.try_into().unwrap())
}

impl Model {
    fn next_new(&self) -> u64 {
        self.events.last_key_value().map_or(self.floor, |(seq, _)| *seq) + 1
    }

    fn seqs(&self, wanted: impl Fn(SlotState) -> bool) -> Vec<u64> {
        self.events.iter().filter(|(_, fact)| wanted(fact.state)).map(|(seq, _)| *seq).collect()
    }

    fn leased(&self) -> Vec<u64> {
        self.seqs(|state| matches!(state, SlotState::Leased(_)))
    }

    fn picked(&self, pick: usize) -> Option<(u64, Lease)> {
        let leased = self.leased();
        let seq = *leased.get(pick % leased.len().max(1))?;
        let SlotState::Leased(lease) = self.events[&seq].state else { unreachable!() };
        Some((seq, lease))
    }

    fn set(&mut self, seq: u64, state: SlotState) {
        self.events.get_mut(&seq).unwrap().state = state;
        while self.events.first_key_value().is_some_and(|(_, fact)| fact.state == SlotState::Done) {
            self.floor = self.events.pop_first().unwrap().0;
        }
    }

    fn end(&mut self, seq: u64, end: LeaseEnd, now: Instant) {
        let delays = RULES.delays;
        let max_attempts = self.max_attempts;
        let attempts = &mut self.events.get_mut(&seq).unwrap().attempts;
        let (is_failure, wait) = match end {
            LeaseEnd::Failed { delay } => {
                attempts.failures += 1;
                (true, delay.unwrap_or(delays.after(attempts.failures)))
            }
            LeaseEnd::GivenUp => {
                attempts.failures += 1;
                return self.set(seq, SlotState::DeadLetterPending);
            }
            LeaseEnd::Disconnected => {
                attempts.disconnects += 1;
                (false, delays.after(attempts.disconnects - 1))
            }
            LeaseEnd::DisconnectedAlone => {
                attempts.failures += 1;
                attempts.disconnects += 1;
                (true, delays.after(attempts.disconnects - 1))
            }
            LeaseEnd::Released => (false, Duration::ZERO),
        };
        let state = if is_failure && u32::from(attempts.failures) >= max_attempts {
            SlotState::DeadLetterPending
        } else if wait.is_zero() {
            SlotState::Redeliverable
        } else {
            SlotState::BackingOff(now + wait)
        };
        self.set(seq, state);
    }

    fn is_suspect(&self, fact: &Fact) -> bool {
        u32::from(fact.attempts.disconnects) >= self.max_attempts
    }
}

/// The lease table and the model side by side, with a clock.
struct Pair {
    leases: Leases,
    model: Model,
    now: Instant,
    /// The cursor that is being stored.
    generation: Option<CursorGeneration>,
}

impl Pair {
    fn take(&mut self, step: &Step) {
        let start = self.now;
        let after = |ms| start + Duration::from_millis(ms);
        let Self { leases, model, now, generation } = self;
        match *step {
            Step::BeginGeneration => {
                *generation = Some(leases.begin_generation());
                model.being_stored = model
                    .events
                    .iter()
                    .map(|(seq, fact)| (*seq, fact.attempts.deliveries))
                    .collect();
            }
            Step::GenerationStored => {
                if let Some(generation) = generation.take() {
                    leases.generation_stored(generation);
                    for (seq, attempts) in std::mem::take(&mut model.being_stored) {
                        if let Some(fact) = model.events.get_mut(&seq) {
                            fact.recorded = fact.recorded.max(attempts);
                        }
                    }
                }
            }
            Step::Lease { member, timeout_ms } => {
                let redelivery = leases.first_redelivery().or(leases.first_suspect());
                let seq = redelivery.unwrap_or_else(|| leases.next_new());
                let lease = Lease {
                    member: MemberId(member),
                    leased_at: *now,
                    deadline: after(timeout_ms),
                };
                let attempt = leases.lease(seq, &id_of(seq), Timestamp(seq.0), lease);
                let fact = model.events.entry(seq.0).or_insert(Fact {
                    attempts: Attempts::default(),
                    recorded: 0,
                    state: SlotState::Redeliverable,
                });
                assert!(fact.is_redeliverable());
                fact.attempts.deliveries += 1;
                fact.state = SlotState::Leased(lease);
                assert_eq!(attempt, fact.attempts.deliveries);
            }
            Step::Ack { pick } => {
                if let Some((seq, lease)) = model.picked(pick) {
                    leases.begin_ack(Seq(seq));
                    model.set(seq, SlotState::Acknowledging(lease));
                }
            }
            Step::Store => {
                for seq in model.seqs(|state| state == SlotState::DeadLetterPending) {
                    leases.begin_dead_letter(Seq(seq));
                    model.set(seq, SlotState::DeadLettering);
                }
                for seq in model.seqs(|state| state.counts_as_done() && state != SlotState::Done) {
                    leases.finish(Seq(seq));
                    model.set(seq, SlotState::Done);
                }
            }
            Step::StoringFails => {
                for seq in model.seqs(|state| state == SlotState::DeadLetterPending) {
                    leases.begin_dead_letter(Seq(seq));
                    leases.undo_dead_letter(Seq(seq));
                }
                for seq in model.seqs(|state| matches!(state, SlotState::Acknowledging(_))) {
                    let SlotState::Acknowledging(lease) = model.events[&seq].state else {
                        unreachable!()
                    };
                    assert_eq!(leases.undo_ack(Seq(seq)), Some(lease.member));
                    model.set(seq, SlotState::Leased(lease));
                }
            }
            Step::Nack { pick, end } => {
                if let Some((seq, _)) = model.picked(pick) {
                    leases.end(Seq(seq), end, *now).unwrap();
                    model.end(seq, end, *now);
                }
            }
            Step::SetMaxAttempts { max_attempts } => {
                leases.set_max_attempts(max_attempts);
                model.max_attempts = max_attempts;
            }
            Step::Tick { ms } => {
                *now += Duration::from_millis(ms);
                let mut expired = Vec::new();
                for (seq, fact) in &mut model.events {
                    match fact.state {
                        SlotState::Leased(lease) if lease.deadline <= *now => {
                            expired.push((Seq(*seq), lease.member));
                        }
                        SlotState::BackingOff(until) if until <= *now => {
                            fact.state = SlotState::Redeliverable;
                        }
                        _ => {}
                    }
                }
                assert_eq!(leases.expire_due_leases(*now), expired);
                for (seq, _) in expired {
                    leases.end(seq, BACK_OFF, *now).unwrap();
                    model.end(seq.0, BACK_OFF, *now);
                }
            }
            Step::Leave { member, end } => {
                let held = leases.leases_of(MemberId(member));
                let is_its = |state| matches!(state, SlotState::Leased(l) if l.member.0 == member);
                assert_eq!(held, model.seqs(is_its).into_iter().map(Seq).collect::<Vec<_>>());
                for seq in held {
                    leases.end(seq, end, *now).unwrap();
                    model.end(seq.0, end, *now);
                }
            }
            Step::RevokeUnsent { pick } => {
                if let Some((seq, lease)) = model.picked(pick) {
                    let fact = model.events.get_mut(&seq).unwrap();
                    let other = MemberId(lease.member.0 + 1);
                    let attempts = fact.attempts.deliveries;
                    assert!(!leases.revoke_unsent(Seq(seq), other, attempts));
                    assert!(!leases.revoke_unsent(Seq(seq), lease.member, attempts + 1));
                    assert!(leases.revoke_unsent(Seq(seq), lease.member, attempts));
                    fact.attempts.deliveries -= 1;
                    fact.recorded = fact.attempts.deliveries;
                    fact.state = SlotState::Redeliverable;
                    // Its entry for this event was revoked.
                    model.being_stored.remove(&seq);
                }
            }
            Step::Extend { pick, ms } => {
                if let Some((seq, lease)) = model.picked(pick) {
                    let deadline = after(ms);
                    leases.extend(Seq(seq), deadline);
                    model.set(seq, SlotState::Leased(Lease { deadline, ..lease }));
                }
            }
            Step::DeadLetter => {
                if let Some(seq) = leases.first_redelivery().or(leases.first_suspect()) {
                    leases.dead_letter(seq);
                    model.set(seq.0, SlotState::DeadLetterPending);
                }
            }
            Step::Trim { further } => {
                let first = model.floor + 1 + further;
                let lost: Vec<_> = model
                    .events
                    .range(..first)
                    .filter_map(|(_, fact)| match fact.state {
                        SlotState::Leased(lease) => Some(lease.member),
                        _ => None,
                    })
                    .collect();
                leases.trim_below(Seq(first));
                assert_eq!(leases.take_trimmed(), lost);
                model.events = model.events.split_off(&first);
                model.floor = first - 1;
                if let Some((seq, fact)) = model.events.first_key_value() {
                    let (seq, state) = (*seq, fact.state);
                    model.set(seq, state);
                }
            }
            Step::SkipUnreadable { count } => {
                let last = model.next_new() + count - 1;
                leases.skip_unreadable(Seq(last));
                for seq in model.next_new()..=last {
                    let done =
                        Fact { attempts: Attempts::default(), recorded: 0, state: SlotState::Done };
                    model.events.insert(seq, done);
                    model.set(seq, SlotState::Done);
                }
            }
            Step::Restart => {
                *leases = super::restarted(leases, super::at(*now));
                *generation = None;
                model.being_stored.clear();
                for fact in model.events.values_mut() {
                    fact.recorded = fact.attempts.deliveries;
                    fact.state = match fact.state {
                        state if state.counts_as_done() => SlotState::Done,
                        SlotState::BackingOff(until) if until > *now => {
                            SlotState::BackingOff(*now + in_whole_seconds(until - *now))
                        }
                        _ => SlotState::Redeliverable,
                    };
                }
                if let Some((&seq, &Fact { state, .. })) = model.events.first_key_value() {
                    model.set(seq, state);
                }
                // Undelivered events at the end are new again.
                while model.events.last_key_value().is_some_and(|(_, fact)| {
                    fact.attempts == Attempts::default() && fact.state == SlotState::Redeliverable
                }) {
                    model.events.pop_last();
                }
            }
        }
    }

    fn compare(&self) {
        let Self { leases, model, .. } = self;
        assert_eq!(leases.floor(), Seq(model.floor));
        assert_eq!(leases.next_new(), Seq(model.next_new()));
        assert_eq!(leases.in_flight(), model.leased().len());
        let again = || model.events.iter().filter(|(_, fact)| fact.is_redeliverable());
        let first = |are_suspects| {
            let mut wanted = again().filter(|(_, fact)| model.is_suspect(fact) == are_suspects);
            wanted.next().map(|(seq, _)| Seq(*seq))
        };
        assert_eq!(leases.first_redelivery(), first(false));
        assert_eq!(leases.first_suspect(), first(true));
        let mut earliest = None::<Instant>;
        for (&seq, fact) in &model.events {
            let (seq, id) = (Seq(seq), id_of(Seq(seq)));
            if fact.state != SlotState::Done {
                assert_eq!(leases.deliveries(seq), fact.attempts.deliveries, "attempts of {seq}");
            }
            assert_eq!(leases.is_redeliverable(seq), fact.is_redeliverable(), "{seq}");
            for member in (1..4).map(MemberId) {
                let has = matches!(fact.state, SlotState::Leased(lease) if lease.member == member);
                assert_eq!(leases.leased_to(member, &id), has.then_some(seq));
            }
            if let SlotState::Leased(Lease { deadline: at, .. }) | SlotState::BackingOff(at) =
                fact.state
            {
                earliest = Some(earliest.map_or(at, |known| known.min(at)));
            }
        }
        if let Some(earliest) = earliest {
            assert!(leases.next_timer().is_some_and(|timer| timer <= earliest), "a missed timer");
        }
        self.compare_cursor();
    }

    fn compare_cursor(&self) {
        let cursor = self.leases.cursor(super::at(self.now));
        let mut expected = self.model.events.iter().peekable();
        let mut floor = self.model.floor;
        while let Some((seq, _)) = expected.next_if(|(_, fact)| fact.state.counts_as_done()) {
            floor = *seq;
        }
        assert_eq!(cursor.floor, Seq(floor));
        let mut expected: Vec<_> = expected
            .map(|(_, fact)| match fact.state.counts_as_done() {
                true => Progress::Done,
                false => Progress::Tried(fact.attempts),
            })
            .collect();
        while expected.last() == Some(&Progress::Tried(Attempts::default())) {
            expected.pop();
        }
        let above = cursor.above().map(|progress| match progress {
            Progress::BackingOff(attempts, _) => Progress::Tried(attempts),
            Progress::Done | Progress::Tried(_) => progress,
        });
        assert_eq!(above.collect::<Vec<_>>(), expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn agrees_with_the_model(steps in steps()) {
        let now = Instant::now();
        let model = Model {
            max_attempts: RULES.max_attempts,
            events: BTreeMap::new(),
            floor: 0,
            being_stored: BTreeMap::new(),
        };
        let mut pair = Pair { leases: super::fresh(), model, now, generation: None };
        for step in &steps {
            pair.take(step);
            pair.compare();
        }
    }
}
