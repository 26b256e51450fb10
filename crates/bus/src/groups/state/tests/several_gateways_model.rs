//! Three gateways share a store and one group: nothing is lost, and the owner of the group never delivers
//! what was acknowledged.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::super::DeliveryGate;
use super::simulation::{AckAnswer, Consumer, Faults, Gateway, MAX_ATTEMPTS, SentAck, Store};
use super::{Dice, for_each_seed};
use crate::groups::command::{AfterNack, Command, Departure};

const HISTORIES: u64 = 2_000;
const STEPS: usize = 200;
const GATEWAYS: usize = 3;
/// Dead letters that were redriven in all histories.
static REDRIVEN: AtomicU64 = AtomicU64::new(0);

struct World<'a> {
    dice: &'a Dice,
    now: Instant,
    store: Store,
    gateways: Vec<Gateway>,
    consumers: Vec<Option<Consumer>>,
    /// Numbers consumers, and gateways after a crash.
    started: u64,
    sent: Vec<SentAck>,
    acked: BTreeSet<u64>,
    tried: BTreeSet<u64>,
    /// Every event that a stored cursor counted as done.
    done: BTreeSet<u64>,
}

impl<'a> World<'a> {
    fn new(dice: &'a Dice) -> Self {
        Self {
            dice,
            now: Instant::now(),
            store: Store::default(),
            gateways: (0..GATEWAYS).map(|number| Gateway::new(number, true)).collect(),
            consumers: (0..GATEWAYS).map(|_| None).collect(),
            started: GATEWAYS as u64,
            sent: vec![],
            acked: BTreeSet::new(),
            tried: BTreeSet::new(),
            done: BTreeSet::new(),
        }
    }

    fn step(&mut self) {
        let index = self.dice.index(GATEWAYS);
        match self.dice.below(26) {
            0..=2 => {
                self.store.last += 1 + self.dice.below(4);
                self.take_turns();
            }
            3 | 4 => self.join(index),
            5 => self.leave(index),
            6..=9 => self.ack(index),
            10..=13 => self.gateways[index].complete_commit(&mut self.store, self.now),
            14 => self.wait(Duration::from_millis(self.dice.below(15_000))),
            15 => self.cut_off(index),
            16 => self.reconnect(index),
            17 => self.gateways[index].faults.answers_lost += 1,
            18 => self.crash(index),
            19 => self.gateways[index].faults.commits_late += 1,
            20 => self.gateways[index].land_late(&mut self.store),
            21 | 22 => self.redrive(),
            23 | 24 => self.give_up(index),
            _ => self.watch(),
        }
        self.look();
        self.check();
    }

    fn take_turns(&mut self) {
        for gateway in &mut self.gateways {
            gateway.take_turn(&mut self.store, self.now);
        }
    }

    fn join(&mut self, index: usize) {
        if self.consumers[index].is_none() {
            self.started += 1;
            let (gateway, store) = (&mut self.gateways[index], &mut self.store);
            let named = u32::try_from(self.dice.below(6)).unwrap();
            let named = (named > 0).then_some(named);
            self.consumers[index] =
                Consumer::join(self.started, 5, named, gateway, store, self.now);
        }
    }

    fn leave(&mut self, index: usize) {
        if let Some(consumer) = self.consumers[index].take() {
            let leave = Command::Leave {
                member: consumer.id,
                departure: Departure::Disconnected,
                reply: None,
            };
            self.gateways[index].send(leave, &mut self.store, self.now);
        }
    }

    fn ack(&mut self, index: usize) {
        let Some(consumer) = &mut self.consumers[index] else { return };
        let held = std::mem::take(&mut consumer.held);
        self.tried.extend(held.iter().map(|delivery| delivery.event.seq.0));
        let (gateway, store) = (&mut self.gateways[index], &mut self.store);
        let publishes = self.dice.below(2) == 0;
        self.sent.push(SentAck::send(consumer.id, held, publishes, gateway, store, self.now));
    }

    fn give_up(&mut self, index: usize) {
        let Some(consumer) = &mut self.consumers[index] else { return };
        if let Some(delivery) = consumer.held.pop() {
            let (reply, _) = oneshot::channel();
            let (member, ids, next) = (consumer.id, vec![delivery.event.id], AfterNack::DeadLetter);
            let nack = Command::Nack { member, ids, reason: None, next, reply };
            self.gateways[index].send(nack, &mut self.store, self.now);
        }
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
        self.take_turns();
    }

    /// The gateway lives, but does not reach the store.
    fn cut_off(&mut self, index: usize) {
        let gateway = &mut self.gateways[index];
        gateway.faults =
            Faults { commits_lost: u32::MAX, reads_failed: u32::MAX, ..Faults::default() };
        gateway.gate = DeliveryGate::HeartbeatStale;
    }

    fn reconnect(&mut self, index: usize) {
        let gateway = &mut self.gateways[index];
        gateway.faults = Faults::default();
        gateway.gate = DeliveryGate::Open;
        gateway.take_turn(&mut self.store, self.now);
    }

    /// The gateway dies, perhaps just after its commit reached the store; another one takes its place.
    fn crash(&mut self, index: usize) {
        if self.dice.below(2) == 0 {
            self.gateways[index].complete_commit(&mut self.store, self.now);
            self.look();
        }
        self.started += 1;
        self.gateways[index] = Gateway::new(usize::try_from(self.started).unwrap(), true);
        self.consumers[index] = None;
    }

    /// Tells the gateways that watch the lease if its owner is dead, cut off, or has released it, or if it
    /// names themselves because a claim had no answer.
    fn watch(&mut self) {
        let Some((holder, _, version)) = self.store.lease else { return };
        let is_open = |gateway: &Gateway| gateway.gate == DeliveryGate::Open;
        let is_alive = |holder| self.gateways.iter().any(|g| g.number() == holder && is_open(g));
        let is_held = holder.is_some_and(is_alive);
        for gateway in &mut self.gateways {
            if gateway.is_watching && (!is_held || holder == Some(gateway.number())) {
                let take_over = Command::TakeOver { expired: Some(version) };
                gateway.send(take_over, &mut self.store, self.now);
            }
            if gateway.watches_properties {
                let stored = Command::PropertiesStored(self.store.properties);
                gateway.send(stored, &mut self.store, self.now);
            }
            if self.dice.below(2) == 0 {
                gateway.send(Command::ChangedElsewhere, &mut self.store, self.now);
            }
        }
    }

    /// An operator redrives a dead letter, at a gateway that need not be the owner.
    fn redrive(&mut self) {
        let dead = self.store.not_redriven();
        if !dead.is_empty() {
            let seq = dead[self.dice.index(dead.len())];
            self.store.redrive(seq);
            self.tried.remove(&seq);
            REDRIVEN.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn look(&mut self) {
        let Self { acked, consumers, .. } = self;
        self.sent.retain_mut(|sent| {
            match sent.answer() {
                Some(AckAnswer::Acked(seqs)) => acked.extend(seqs),
                Some(AckAnswer::Refused(deliveries)) => {
                    let mut consumers = consumers.iter_mut().flatten();
                    if let Some(consumer) = consumers.find(|consumer| consumer.id == sent.member) {
                        consumer.hold_again(deliveries);
                    }
                }
                None => return true,
            }
            false
        });
        let owner = self.store.lease.and_then(|(holder, ..)| holder);
        for (gateway, consumer) in self.gateways.iter().zip(&mut self.consumers) {
            let Some(consumer) = consumer else { continue };
            for delivery in consumer.take() {
                let seq = delivery.event.seq.0;
                let is_owner = owner == Some(gateway.number());
                assert!(!is_owner || !self.acked.contains(&seq), "{seq} came after its ACK");
                consumer.held.retain(|older| older.event.seq != delivery.event.seq);
                consumer.held.push(delivery);
            }
        }
    }

    fn check(&mut self) {
        let dead: BTreeSet<_> = self.store.dead_seqs().into_iter().collect();
        let done = self.store.done();
        for seq in &done {
            let is_accounted_for = self.tried.contains(seq) || dead.contains(seq);
            assert!(is_accounted_for, "the cursor passed {seq}, which nobody acknowledged");
        }
        let mut lost = self.done.difference(&done);
        assert_eq!(lost.next(), None, "an event was done, and is not any more");
        self.done.clone_from(&done);
        let mut published = self.store.published_for();
        published.sort_unstable();
        assert!(published.is_sorted_by(|a, b| a < b), "published twice: {published:?}");
        for seq in &self.acked {
            let is_open = self.store.redrives.contains_key(seq);
            assert!(done.contains(seq) && !is_open, "the acknowledgement of {seq} was lost");
        }
    }

    fn finish(mut self) {
        for index in 0..GATEWAYS {
            self.reconnect(index);
        }
        for _ in 0..10_000 {
            self.watch();
            if self.store.done().len() as u64 == self.store.last && self.store.redrives.is_empty() {
                for seq in self.store.all_redriven() {
                    assert!(self.tried.contains(&seq), "{seq} was redriven and never handled");
                }
                return self.check_properties();
            }
            for index in 0..GATEWAYS {
                self.join(index);
                self.ack(index);
                self.gateways[index].complete_commit(&mut self.store, self.now);
            }
            self.wait(Duration::from_secs(31));
            self.look();
            self.check();
        }
        panic!("{} of {} events are done", self.store.done().len(), self.store.last);
    }
}

impl World<'_> {
    /// The owner of the group goes by what was named last, at whichever gateway.
    fn check_properties(&self) {
        let named = self.store.properties.max_attempts;
        for gateway in self.gateways.iter().filter(|gateway| gateway.state.owned().is_some()) {
            let applies = gateway.state.rules().max_attempts;
            assert_eq!(applies, named.unwrap_or(MAX_ATTEMPTS));
        }
    }
}

#[test]
fn nothing_is_lost_whatever_happens_to_the_gateways() {
    for_each_seed(HISTORIES, |dice| {
        let mut world = World::new(dice);
        for _ in 0..STEPS {
            world.step();
        }
        world.finish();
    });
    assert!(REDRIVEN.load(Ordering::Relaxed) > 0, "no dead letter was redriven");
}
