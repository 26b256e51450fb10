//! What must hold of a group whose consumers acknowledge events or give them up, while an operator redrives its dead
//! letters.
//!
//! An event of the group is open at first, and again when its letter is redriven. Each time it ends once: with an ACK, or
//! with a new letter. So there is no delivery after an ACK, and at most one letter waits to be redriven.

use std::collections::BTreeMap;

use super::letters::LettersOf;

#[derive(Debug, Default)]
pub(crate) struct Handled {
    events: BTreeMap<u64, History>,
    /// How often the server was killed.
    lifetime: u64,
    /// Several gateways deliver the group one after the other. What an earlier one has sent may be read late, and then
    /// its ACK has no effect; so only effects count.
    has_several_gateways: bool,
}

#[derive(Debug, Default)]
struct History {
    deliveries: u64,
    last: Option<Delivered>,
    acks_sent: u64,
    is_acked: bool,
    give_ups_sent: u64,
    given_up: u64,
}

#[derive(Debug)]
struct Delivered {
    attempt: u64,
    lifetime: u64,
    is_given_up: bool,
}

impl Handled {
    pub(crate) fn at_several_gateways() -> Self {
        Self { has_several_gateways: true, ..Self::default() }
    }

    pub(crate) fn killed(&mut self) {
        self.lifetime += 1;
    }

    pub(crate) fn delivered(&mut self, seq: u64, attempt: u64) {
        let lifetime = self.lifetime;
        let event = self.events.entry(seq).or_default();
        if !self.has_several_gateways {
            assert!(!event.is_acked, "{seq}: attempt {attempt} after its ACK was answered");
            // Only a kill may lose the record of a delivery, and only a redriven event begins at 1 again. A consumer that
            // left may not have read its first deliveries.
            if let Some(before) = event.last.as_ref().filter(|last| last.lifetime == lifetime) {
                let is_later = before.is_given_up || attempt > before.attempt;
                assert!(is_later, "{seq}: attempt {attempt} after {before:?}");
            }
        }
        event.deliveries += 1;
        event.last = Some(Delivered { attempt, lifetime, is_given_up: false });
    }

    pub(crate) fn ack_sent(&mut self, seq: u64) {
        self.events.entry(seq).or_default().acks_sent += 1;
    }

    /// An ACK took effect.
    pub(crate) fn acked(&mut self, seq: u64) {
        let event = self.events.entry(seq).or_default();
        assert!(!event.is_acked, "{seq} was acknowledged twice");
        event.is_acked = true;
    }

    pub(crate) fn give_up_sent(&mut self, seq: u64) {
        let event = self.events.entry(seq).or_default();
        event.give_ups_sent += 1;
        if let Some(last) = &mut event.last {
            last.is_given_up = true;
        }
    }

    /// A NACK took effect.
    pub(crate) fn given_up(&mut self, seq: u64) {
        self.events.entry(seq).or_default().given_up += 1;
    }

    /// How many events the group has sent an ACK for. Its answer may be lost with the server.
    pub(crate) fn handled_events(&self) -> u64 {
        self.events.values().filter(|event| event.acks_sent > 0).count() as u64
    }

    /// Checks the group when it has finished the events up to `last`. `letters` are those of the group.
    pub(crate) fn check_end(&self, last: u64, letters: &BTreeMap<u64, LettersOf>) {
        for seq in 1..=last {
            let event =
                self.events.get(&seq).unwrap_or_else(|| panic!("{seq} was never delivered"));
            let LettersOf { all, redriven } = letters.get(&seq).copied().unwrap_or_default();
            let seen = format!("{seq}: {event:?}, {all} letters, {redriven} of them redriven");
            assert!(all - redriven <= 1, "given up twice without being redriven: {seen}");
            assert!(event.given_up <= all, "a letter is missing: {seen}");
            assert!(all <= event.give_ups_sent, "a letter came twice: {seen}");
            assert!(event.deliveries > redriven, "a letter was redriven to nobody: {seen}");
            if all == redriven {
                assert!(event.acks_sent > 0, "neither acknowledged nor a dead letter: {seen}");
            } else {
                assert!(!event.is_acked, "acknowledged and a dead letter: {seen}");
                let is_given_up = event.last.as_ref().is_some_and(|last| last.is_given_up);
                assert!(
                    is_given_up || self.has_several_gateways,
                    "delivered again although its letter was not redriven: {seen}"
                );
            }
        }
        let is_stored = |seq: &u64| (1..=last).contains(seq);
        assert!(self.events.keys().chain(letters.keys()).all(is_stored), "only what was published");
    }
}
