//! A token bucket with two uses, neither of which can starve the other.

use std::time::{Duration, Instant};

use super::token_bucket::TOKEN;
use super::{Deficit, LimitStatus, Rate, TokenBucket};

/// What tokens are taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenUse {
    /// Requests of clients: publishes, marks, lookups.
    Request,
    /// Deliveries of events to clients.
    Delivery,
}

/// A token bucket whose refill belongs to the uses that wait for it: all of it to the only one, half each
/// to both.
///
/// A use that is refused claims tokens: what is left in the bucket, and its part of the refill until it
/// has what it asked for. The other use leaves those tokens alone. So a batch that needs many tokens at
/// once gets them in time although deliveries take every single one that is free, and deliveries go on
/// although a client publishes as much as it can. The total is that of a [`TokenBucket`].
#[derive(Clone, Debug)]
pub(crate) struct FairBucket {
    bucket: TokenBucket,
    requests: Option<Claim>,
    deliveries: Option<Claim>,
}

/// The tokens that one use has saved. The claims together never exceed what is in the bucket.
#[derive(Clone, Copy, Debug)]
struct Claim {
    /// Units of a [`TokenBucket`].
    saved: i128,
    /// The claim saves no more than this.
    goal: i128,
    ends_at: Instant,
}

/// How long saved tokens wait for a use that was told when to come back and does not.
const CLAIM_GRACE: Duration = Duration::from_secs(1);

impl FairBucket {
    pub(crate) fn full(rate: Rate, now: Instant) -> Self {
        Self { bucket: TokenBucket::full(rate, now), requests: None, deliveries: None }
    }

    /// Returns the deficit of `count` tokens, or `None` if [`FairBucket::take`] may take them.
    pub(crate) fn deficit(&mut self, usage: TokenUse, count: u64, now: Instant) -> Option<Deficit> {
        self.refill(now);
        let missing = i128::from(count) * TOKEN - self.available_units(usage);
        if missing <= 0 || self.may_take_all(usage, count) {
            return None;
        }
        Some(self.wait_for(usage, count, missing))
    }

    /// Takes `count` tokens that are there. Ends the claim of this use: it has what it asked for.
    pub(crate) fn take(&mut self, usage: TokenUse, count: u64) {
        self.bucket.take(count);
        *self.claim_mut(usage) = None;
        let left = self.bucket.level();
        if let Some(other) = self.claim_mut(usage.other()) {
            other.saved = other.saved.min(left);
        }
    }

    /// Takes up to `count` tokens that nobody has saved, and returns how many.
    pub(crate) fn take_up_to(&mut self, count: u64, now: Instant) -> u64 {
        self.refill(now);
        let saved: i128 =
            [self.requests, self.deliveries].iter().flatten().map(|it| it.saved).sum();
        let free = (self.bucket.level() - saved).max(0) / TOKEN;
        let taken = count.min(u64::try_from(free).unwrap_or(u64::MAX));
        self.bucket.take(taken);
        taken
    }

    /// Returns the most tokens that [`FairBucket::owe`] may take now.
    pub(crate) fn chargeable(&mut self, now: Instant) -> u64 {
        self.refill(now);
        self.bucket.chargeable()
    }

    /// Takes `count` tokens, whether they are there or not, as far as a second refills the debt. Returns how
    /// much longer a request waits for tokens because of that.
    pub(crate) fn owe(&mut self, count: u64, now: Instant) -> Duration {
        self.refill(now);
        let before = self.bucket.level();
        self.bucket.owe(count);
        let mut left = self.bucket.level().max(0);
        let delay = match self.wait_for(TokenUse::Request, 0, before - self.bucket.level()) {
            Deficit::Wait(time) => time,
            Deficit::Never => Duration::ZERO,
        };
        for claim in [&mut self.requests, &mut self.deliveries].into_iter().flatten() {
            claim.saved = claim.saved.min(left);
            claim.ends_at += delay;
            left -= claim.saved;
        }
        delay
    }

    /// Returns how long it takes to pay what [`FairBucket::owe`] took, or `None` if nothing is owed.
    pub(crate) fn debt(&mut self, now: Instant) -> Option<Duration> {
        self.refill(now);
        self.bucket.debt()
    }

    /// Saves up to `count` tokens, which are there after `wait`.
    pub(crate) fn save(&mut self, usage: TokenUse, count: u64, wait: Duration, now: Instant) {
        // A use that comes back a little late finds more than it asked for, and goes on.
        let goal = (i128::from(count) * TOKEN).max(self.bucket.capacity() / 2);
        // A bucket that owes tokens has none to save.
        let saved = self.available_units(usage).clamp(0, goal);
        let ends_at = now + wait + CLAIM_GRACE;
        *self.claim_mut(usage) = Some(Claim { saved, goal, ends_at });
    }

    /// Returns tokens that were not used, up to the capacity.
    pub(crate) fn give_back(&mut self, count: u64) {
        self.bucket.give_back(count);
    }

    /// Returns the status for `usage`.
    pub(crate) fn status(&mut self, usage: TokenUse, now: Instant) -> LimitStatus {
        self.refill(now);
        let available = self.available_units(usage) / TOKEN;
        let available = u64::try_from(available).unwrap_or(0);
        LimitStatus { rate: self.bucket.rate(), available }
    }

    pub(crate) fn is_full(&mut self, now: Instant) -> bool {
        self.bucket.is_full(now)
    }

    /// Returns `true` if the bucket is full and a request may take what deliveries have saved: no one can
    /// save any more, so a batch that needs all of the bucket would wait for as long as there are deliveries.
    fn may_take_all(&self, usage: TokenUse, count: u64) -> bool {
        let is_full = self.bucket.level() == self.bucket.capacity();
        usage == TokenUse::Request && is_full && count <= self.bucket.rate().capacity
    }

    fn available_units(&self, usage: TokenUse) -> i128 {
        self.bucket.level() - self.claim(usage.other()).map_or(0, |claim| claim.saved)
    }

    /// Returns the deficit of `count` tokens for `usage`, of which `missing` units are missing.
    fn wait_for(&self, usage: TokenUse, count: u64, missing: i128) -> Deficit {
        let all = self.bucket.units_per_nano();
        let part = if self.claim(usage.other()).is_some() { all / 2 } else { all };
        self.bucket.wait_for(count, missing, part)
    }

    fn refill(&mut self, now: Instant) {
        // Tokens that pay a debt cannot be saved.
        let before = self.bucket.level().max(0);
        self.bucket.refill(now);
        let gained = self.bucket.level().max(0) - before;
        let is_shared = self.requests.is_some() && self.deliveries.is_some();
        let part = if is_shared { gained / 2 } else { gained };
        for claim in [&mut self.requests, &mut self.deliveries] {
            if let Some(waiting) = claim {
                waiting.saved = (waiting.saved + part).min(waiting.goal);
                if waiting.ends_at <= now {
                    *claim = None;
                }
            }
        }
    }

    const fn claim(&self, usage: TokenUse) -> Option<Claim> {
        match usage {
            TokenUse::Request => self.requests,
            TokenUse::Delivery => self.deliveries,
        }
    }

    const fn claim_mut(&mut self, usage: TokenUse) -> &mut Option<Claim> {
        match usage {
            TokenUse::Request => &mut self.requests,
            TokenUse::Delivery => &mut self.deliveries,
        }
    }
}

impl TokenUse {
    const fn other(self) -> Self {
        match self {
            Self::Request => Self::Delivery,
            Self::Delivery => Self::Request,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A bucket and the time.
    struct World {
        bucket: FairBucket,
        now: Instant,
    }

    impl World {
        fn new(capacity: u64, refill_per_sec: u64) -> Self {
            let now = Instant::now();
            Self { bucket: FairBucket::full(Rate { capacity, refill_per_sec }, now), now }
        }

        fn ask(&mut self, usage: TokenUse, count: u64) -> Result<(), Duration> {
            match self.bucket.deficit(usage, count, self.now) {
                None => {
                    self.bucket.take(usage, count);
                    Ok(())
                }
                Some(Deficit::Wait(wait)) => {
                    self.bucket.save(usage, count, wait, self.now);
                    Err(wait)
                }
                Some(Deficit::Never) => panic!("{count} tokens never fit"),
            }
        }

        /// Delivers whatever is possible, and returns how much that was and when to go on.
        fn deliver(&mut self) -> (u64, Duration) {
            let mut delivered = 0;
            loop {
                match self.ask(TokenUse::Delivery, 1) {
                    Ok(()) => delivered += 1,
                    Err(wait) => return (delivered, wait),
                }
            }
        }
    }

    /// Runs both uses for `secs` as fast as they can, each waiting as long as it is told and `latency`
    /// longer. Returns the tokens of the batches and of the deliveries.
    fn compete(world: &mut World, batch: u64, secs: u64, latency: Duration) -> (u64, u64) {
        let end = world.now + Duration::from_secs(secs);
        let (mut published, mut delivered) = (0, 0);
        let (mut publish_at, mut deliver_at) = (world.now, world.now);
        while world.now < end {
            if deliver_at <= world.now {
                let (count, wait) = world.deliver();
                delivered += count;
                deliver_at = world.now + wait + latency;
            }
            if publish_at <= world.now {
                match world.ask(TokenUse::Request, batch) {
                    Ok(()) => published += batch,
                    Err(wait) => publish_at = world.now + wait + latency,
                }
            }
            world.now = world.now.max(publish_at.min(deliver_at));
        }
        (published, delivered)
    }

    #[test]
    fn batches_and_deliveries_get_half_each_while_both_want_tokens() {
        for batch in [1, 10, 50, 100, 150, 200] {
            let mut world = World::new(200, 200);
            let (published, delivered) = compete(&mut world, batch, 60, Duration::from_millis(1));
            assert!(published + delivered <= 200 + 60 * 200, "{batch}: {published} {delivered}");
            // Of 12,000 tokens; the full bucket at the start goes to whoever comes first.
            assert!(published >= 5_300, "batches of {batch}: {published} published");
            assert!(delivered >= 5_300, "batches of {batch}: {delivered} delivered");
        }
    }

    #[test]
    fn a_use_that_is_alone_gets_everything() {
        for usage in [TokenUse::Request, TokenUse::Delivery] {
            let mut world = World::new(200, 200);
            world.ask(usage, 200).unwrap();
            assert_eq!(world.ask(usage, 1), Err(Duration::from_millis(5)));
            world.now += Duration::from_millis(5);
            world.ask(usage, 1).unwrap();
            world.now += Duration::from_millis(499);
            assert_eq!(world.ask(usage, 100), Err(Duration::from_millis(1)));
            world.now += Duration::from_millis(1);
            world.ask(usage, 100).unwrap();
        }
    }

    #[test]
    fn a_use_that_does_not_come_back_loses_what_it_saved() {
        let mut world = World::new(200, 200);
        world.ask(TokenUse::Request, 200).unwrap();
        assert_eq!(world.ask(TokenUse::Request, 200), Err(Duration::from_secs(1)));
        world.now += Duration::from_secs(1);
        // All of the refill is saved for the batch.
        assert_eq!(world.deliver().0, 0);
        world.now += Duration::from_millis(999);
        assert_eq!(world.deliver().0, 0);
        world.now += Duration::from_millis(1);
        assert_eq!(world.deliver().0, 200);
    }

    #[test]
    fn a_claim_leaves_the_other_use_its_half() {
        let mut world = World::new(200, 200);
        world.ask(TokenUse::Request, 200).unwrap();
        assert_eq!(world.deliver(), (0, Duration::from_millis(5)));
        // Deliveries have waited first, so a batch gets half of the refill.
        assert_eq!(world.ask(TokenUse::Request, 100), Err(Duration::from_secs(1)));
        world.now += Duration::from_secs(1);
        world.ask(TokenUse::Request, 100).unwrap();
        assert_eq!(world.deliver().0, 100);
    }

    /// Otherwise a client that waits as told would be refused, and charged, again and again.
    #[test]
    fn a_request_that_was_charged_gets_its_tokens_that_much_later() {
        let mut world = World::new(200, 200);
        world.ask(TokenUse::Request, 200).unwrap();
        assert_eq!(world.deliver().0, 0);
        let wait = world.ask(TokenUse::Request, 100).unwrap_err();
        let delay = world.bucket.owe(80, world.now);
        assert_eq!((wait, delay), (Duration::from_secs(1), Duration::from_millis(800)));
        world.now += wait + delay;
        assert!(world.deliver().0 > 0);
        world.ask(TokenUse::Request, 100).unwrap();
    }

    proptest! {
        /// No order of requests, deliveries and debts gets more than the capacity and the refill, nothing is
        /// granted before debts are paid, and claims never exceed what is in the bucket.
        #[test]
        fn claims_add_no_tokens(
            capacity in 1..500_u64,
            refill_per_sec in 1..5_000_u64,
            steps in proptest::collection::vec((0..2_000_u64, 0..6_u8, 1..500_u64), 1..200),
        ) {
            let mut world = World::new(capacity, refill_per_sec);
            let start = world.now;
            let mut taken = 0;
            for (ms, kind, count) in steps {
                world.now += Duration::from_millis(ms);
                let usage = if kind < 2 { TokenUse::Request } else { TokenUse::Delivery };
                let count = count.min(capacity);
                let has_debt = world.bucket.debt(world.now).is_some();
                if kind == 4 {
                    world.bucket.owe(count, world.now);
                } else if kind == 5 {
                    let free = world.bucket.take_up_to(count, world.now);
                    prop_assert!(free == 0 || !has_debt);
                    taken += free;
                } else if world.ask(usage, count).is_ok() {
                    prop_assert!(!has_debt);
                    taken += count;
                }
                let claims = [world.bucket.requests, world.bucket.deliveries];
                let saved: i128 = claims.into_iter().flatten().map(|claim| claim.saved).sum();
                let level = world.bucket.bucket.level();
                prop_assert!(saved <= level.max(0), "{} of {}", saved, level);
                prop_assert!(level >= -world.bucket.bucket.capacity());
            }
            let elapsed = world.now.duration_since(start).as_millis();
            let refilled = elapsed * u128::from(refill_per_sec) / 1000;
            prop_assert!(u128::from(taken) <= u128::from(capacity) + refilled);
        }

        /// Whatever the latencies and sizes, a batch that waits as told is stored in time.
        #[test]
        fn no_batch_starves(
            capacity in 10..500_u64,
            share in 1..=100_u64,
            latency_ms in 1..200_u64,
        ) {
            let mut world = World::new(capacity, capacity);
            let batch = (capacity * share / 100).max(1);
            let latency = Duration::from_millis(latency_ms);
            let (published, delivered) = compete(&mut world, batch, 60, latency);
            prop_assert!(published >= 15 * capacity, "{} of {}", published, 60 * capacity);
            prop_assert!(delivered >= 15 * capacity, "{} of {}", delivered, 60 * capacity);
        }
    }
}
