//! An exact token bucket.

use std::time::{Duration, Instant};

/// The burst size and the sustained rate of a token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Tokens in a full bucket.
    pub capacity: u64,
    /// Tokens added per second.
    pub refill_per_sec: u64,
}

impl Rate {
    /// Returns the rate of `bytes` per second, with a burst of one second.
    pub(crate) const fn of_bytes(bytes: u64) -> Self {
        Self { capacity: bytes, refill_per_sec: bytes }
    }
}

/// How long it takes until a bucket holds the tokens that were asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deficit {
    /// This long, if no one takes tokens in the meantime.
    Wait(Duration),
    /// Forever: the bucket is too small, or is not refilled.
    Never,
}

/// A token bucket that is refilled continuously. The time is passed in.
///
/// Counts in units of half a billionth of a token, so a nanosecond adds a whole number of them, half of
/// which is a whole number as well. Nothing is lost to rounding, however often the bucket is used.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    rate: Rate,
    /// Units. Negative after [`TokenBucket::overdraw`] and [`TokenBucket::owe`].
    level: i128,
    refilled_at: Instant,
}

/// The units of a token.
pub(super) const TOKEN: i128 = 2_000_000_000;

impl TokenBucket {
    /// Returns a full bucket.
    #[must_use]
    pub fn full(rate: Rate, now: Instant) -> Self {
        Self { rate, level: i128::from(rate.capacity) * TOKEN, refilled_at: now }
    }

    /// Takes `count` tokens, or none.
    ///
    /// # Errors
    ///
    /// The deficit, if there are fewer tokens.
    pub fn try_consume(&mut self, count: u64, now: Instant) -> Result<(), Deficit> {
        match self.deficit(count, now) {
            None => {
                self.take(count);
                Ok(())
            }
            Some(deficit) => Err(deficit),
        }
    }

    /// Like [`TokenBucket::try_consume`], but also takes more tokens than the bucket ever holds, if it is
    /// full. The bucket then owes the rest, and grants nothing until it has been refilled.
    ///
    /// # Errors
    ///
    /// The deficit, if there are fewer tokens and the bucket is not full.
    pub fn overdraw(&mut self, count: u64, now: Instant) -> Result<(), Deficit> {
        self.try_consume(count.min(self.rate.capacity), now)?;
        self.take(count.saturating_sub(self.rate.capacity));
        Ok(())
    }

    /// Returns the deficit of `count` tokens, or `None` if the bucket holds them.
    pub fn deficit(&mut self, count: u64, now: Instant) -> Option<Deficit> {
        self.refill(now);
        let missing = i128::from(count) * TOKEN - self.level;
        (missing > 0).then(|| self.wait_for(count, missing, self.units_per_nano()))
    }

    /// Returns the deficit of `count` tokens of which `missing` units are missing.
    pub(super) fn wait_for(&self, count: u64, missing: i128, units_per_nano: i128) -> Deficit {
        if count > self.rate.capacity || units_per_nano == 0 {
            return Deficit::Never;
        }
        let nanos = (missing + units_per_nano - 1) / units_per_nano;
        Deficit::Wait(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }

    /// Returns tokens that were not used, up to the capacity.
    pub fn give_back(&mut self, count: u64) {
        self.level = (self.level + i128::from(count) * TOKEN).min(self.capacity());
    }

    #[must_use]
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// Changes the rate at `now`. The tokens in the bucket stay, up to the new capacity.
    pub fn set_rate(&mut self, rate: Rate, now: Instant) {
        self.refill(now);
        self.rate = rate;
        self.level = self.level.min(self.capacity());
    }

    /// Returns the number of whole tokens.
    pub fn available(&mut self, now: Instant) -> u64 {
        self.refill(now);
        u64::try_from(self.level.max(0) / TOKEN).unwrap_or(u64::MAX)
    }

    pub fn is_full(&mut self, now: Instant) -> bool {
        self.refill(now);
        self.level == self.capacity()
    }

    /// Takes `count` tokens, whether the bucket has them or not.
    pub(super) fn take(&mut self, count: u64) {
        self.level -= i128::from(count) * TOKEN;
    }

    /// Takes `count` tokens, or as many as [`TokenBucket::chargeable`] returns.
    pub(super) fn owe(&mut self, count: u64) {
        let owed = self.level - i128::from(count) * TOKEN;
        self.level = owed.max(-self.largest_debt()).min(self.level);
    }

    /// Returns the tokens in the bucket and those that it may owe besides, rounded up.
    pub(super) fn chargeable(&self) -> u64 {
        let units = (self.level + self.largest_debt()).max(0);
        u64::try_from((units + TOKEN - 1) / TOKEN).unwrap_or(u64::MAX)
    }

    /// The units that the bucket owes at most: a debt is paid within about a second.
    fn largest_debt(&self) -> i128 {
        let Rate { capacity, refill_per_sec } = self.rate;
        i128::from(refill_per_sec.clamp(1, capacity.max(1))) * TOKEN
    }

    /// Returns how long it takes until the bucket owes nothing, or `None` if it owes nothing now. A bucket
    /// that is never refilled never pays, and so has no debts.
    pub(super) fn debt(&self) -> Option<Duration> {
        match self.wait_for(0, -self.level, self.units_per_nano()) {
            Deficit::Wait(time) if self.level < 0 => Some(time),
            Deficit::Wait(_) | Deficit::Never => None,
        }
    }

    /// The units in the bucket.
    pub(super) const fn level(&self) -> i128 {
        self.level
    }

    /// The units that a nanosecond adds: an even number.
    pub(super) fn units_per_nano(&self) -> i128 {
        i128::from(self.rate.refill_per_sec) * (TOKEN / 1_000_000_000)
    }

    pub(super) fn capacity(&self) -> i128 {
        i128::from(self.rate.capacity) * TOKEN
    }

    /// Adds what the time since the last refill brings, and returns its units.
    pub(super) fn refill(&mut self, now: Instant) -> i128 {
        let nanos = now.saturating_duration_since(self.refilled_at).as_nanos();
        let nanos = i128::try_from(nanos).unwrap_or(i128::MAX);
        let brought = nanos.saturating_mul(self.units_per_nano());
        let before = self.level;
        self.level = before.saturating_add(brought).min(self.capacity());
        self.refilled_at = self.refilled_at.max(now);
        self.level - before
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rate(capacity: u64, refill_per_sec: u64) -> Rate {
        Rate { capacity, refill_per_sec }
    }

    #[test]
    fn reports_the_wait_and_then_grants() {
        let start = Instant::now();
        let mut bucket = TokenBucket::full(rate(200, 200), start);
        bucket.try_consume(200, start).unwrap();
        let deficit = bucket.try_consume(1, start).unwrap_err();
        assert_eq!(deficit, Deficit::Wait(Duration::from_millis(5)));
        let almost = start + Duration::from_nanos(4_999_999);
        assert_eq!(bucket.try_consume(1, almost), Err(Deficit::Wait(Duration::from_nanos(1))));
        bucket.try_consume(1, start + Duration::from_millis(5)).unwrap();
    }

    #[test]
    fn never_exceeds_its_capacity() {
        let start = Instant::now();
        let mut bucket = TokenBucket::full(rate(10, 1000), start);
        assert_eq!(bucket.try_consume(11, start), Err(Deficit::Never));
        let later = start + Duration::from_secs(3600);
        bucket.try_consume(10, later).unwrap();
        assert!(bucket.try_consume(1, later).is_err());
        bucket.give_back(100);
        assert!(bucket.is_full(later));
        assert!(bucket.try_consume(11, later).is_err());
    }

    #[test]
    fn more_than_the_capacity_needs_a_full_bucket_and_is_paid_back() {
        let start = Instant::now();
        let mut bucket = TokenBucket::full(rate(10, 10), start);
        bucket.overdraw(35, start).unwrap();
        let wait = Deficit::Wait(Duration::from_millis(2600));
        assert_eq!(bucket.try_consume(1, start), Err(wait));
        assert_eq!(bucket.available(start), 0);
        let later = start + Duration::from_millis(2600);
        bucket.try_consume(1, later).unwrap();
        assert_eq!(bucket.overdraw(35, later), Err(Deficit::Wait(Duration::from_secs(1))));
        bucket.overdraw(35, later + Duration::from_secs(1)).unwrap();
    }

    #[test]
    fn a_clock_that_steps_back_adds_no_tokens() {
        let start = Instant::now() + Duration::from_secs(10);
        let mut bucket = TokenBucket::full(rate(1, 1), start);
        bucket.try_consume(1, start).unwrap();
        assert!(bucket.try_consume(1, start - Duration::from_secs(5)).is_err());
        assert!(bucket.try_consume(1, start + Duration::from_millis(999)).is_err());
        bucket.try_consume(1, start + Duration::from_secs(1)).unwrap();
    }

    proptest! {
        /// Ten seconds of steady load admit the capacity plus ten times the rate, whatever the intervals.
        #[test]
        fn is_exact_over_ten_seconds(
            capacity in 2..5_000_u64,
            refill_per_sec in 1..20_000_u64,
            steps in proptest::collection::vec(1..20_000_000_u64, 1..50),
        ) {
            let start = Instant::now();
            let mut bucket = TokenBucket::full(rate(capacity, refill_per_sec), start);
            let (mut admitted, mut elapsed, mut step) = (0_u64, 0, 0);
            let ten_seconds = 10_000_000_000;
            // Often enough that the bucket never overflows: each time less than one token is left.
            let longest_step = (capacity - 1) * 1_000_000_000 / refill_per_sec;
            loop {
                let now = start + Duration::from_nanos(elapsed);
                while bucket.try_consume(1, now).is_ok() {
                    admitted += 1;
                }
                if elapsed == ten_seconds {
                    break;
                }
                elapsed = (elapsed + steps[step % steps.len()].min(longest_step)).min(ten_seconds);
                step += 1;
                if step > 200_000 {
                    elapsed = ten_seconds;
                }
            }
            if step <= 200_000 {
                let exact = capacity + 10 * refill_per_sec;
                prop_assert!(admitted.abs_diff(exact) <= 1, "{} instead of {}", admitted, exact);
            }
        }
    }
}
