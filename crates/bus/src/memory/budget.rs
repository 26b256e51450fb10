//! A number of bytes that holders share. Each takes its part through a [`Share`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Notify;

use super::fair_share::BudgetState;

/// The bytes of one kind of buffer. Clones are the same budget.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limit: usize,
    minimum: usize,
    in_use: AtomicUsize,
    refusals: AtomicU64,
    /// Whether a holder got less than it wanted since `freed` was last notified.
    is_short: AtomicBool,
    freed: Notify,
}

/// The bytes of one holder, which are given back when it is dropped.
///
/// Together, the holders have at most the limit of the budget, the minimum of each of them, and what was
/// taken with [`Share::set`].
#[derive(Debug)]
pub struct Share {
    budget: Budget,
    bytes: usize,
}

impl Budget {
    /// Creates a budget of `limit` bytes. Each holder may have `minimum`, even if the budget is used up.
    #[must_use]
    pub fn new(limit: usize, minimum: usize) -> Self {
        Self(Arc::new(Shared {
            limit,
            minimum,
            in_use: AtomicUsize::new(0),
            refusals: AtomicU64::new(0),
            is_short: AtomicBool::new(false),
            freed: Notify::new(),
        }))
    }

    /// Returns a share without bytes.
    #[must_use]
    pub fn share(&self) -> Share {
        Share { budget: self.clone(), bytes: 0 }
    }

    #[must_use]
    pub fn limit(&self) -> usize {
        self.0.limit
    }

    /// Returns the bytes of all holders.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.0.in_use.load(Ordering::SeqCst)
    }

    /// Returns how often a holder got nothing, or had to give something up.
    #[must_use]
    pub fn refusals(&self) -> u64 {
        self.0.refusals.load(Ordering::Relaxed)
    }

    pub(crate) fn count_refusal(&self) {
        self.0.refusals.fetch_add(1, Ordering::Relaxed);
    }

    /// Completes when bytes are given back after a holder got less than it wanted. Notices those that are
    /// given back after its first poll: try again after that, and wait if it fails.
    pub fn freed(&self) -> impl Future<Output = ()> + Send + use<> {
        let shared = Arc::clone(&self.0);
        async move { shared.freed.notified().await }
    }

    fn state(&self, in_use: usize) -> BudgetState {
        BudgetState { limit: self.0.limit, minimum: self.0.minimum, in_use }
    }
}

impl Share {
    #[must_use]
    pub const fn budget(&self) -> &Budget {
        &self.budget
    }

    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the bytes that it may have now. Another holder may take them first.
    #[must_use]
    pub fn allowance(&self) -> usize {
        self.budget.state(self.budget.in_use()).most_for(self.bytes)
    }

    /// Returns `true` if it has more than it leaves free for others, and more than the minimum.
    #[must_use]
    pub fn exceeds_fair_share(&self) -> bool {
        let Shared { limit, minimum, .. } = *self.budget.0;
        self.bytes > minimum && self.bytes > limit.saturating_sub(self.budget.in_use())
    }

    /// Takes as much as is fair, so that it has at most `bytes`. Returns how much it took.
    pub fn grow_up_to(&mut self, bytes: usize) -> usize {
        let before = self.bytes;
        self.bytes = self.attempt(|most| bytes.min(most));
        if self.bytes < bytes {
            // Between this and the next attempt a holder may give something back without noticing.
            self.budget.0.is_short.store(true, Ordering::SeqCst);
            self.bytes = self.attempt(|most| bytes.min(most));
        }
        let granted = self.bytes - before;
        if granted == 0 && bytes > before {
            self.budget.count_refusal();
        }
        granted
    }

    /// Takes as much as it needs to have `bytes`, or nothing if that is more than is fair.
    pub fn try_grow_to(&mut self, bytes: usize) -> bool {
        let all = |most| if bytes <= most { bytes } else { 0 };
        self.bytes = self.attempt(all);
        if self.bytes < bytes {
            self.budget.0.is_short.store(true, Ordering::SeqCst);
            self.bytes = self.attempt(all);
        }
        let is_granted = self.bytes >= bytes;
        if !is_granted {
            self.budget.count_refusal();
        }
        is_granted
    }

    /// Sets its bytes to those of a buffer that exists already, whatever is fair.
    pub fn set(&mut self, bytes: usize) {
        let in_use = &self.budget.0.in_use;
        if bytes > self.bytes {
            in_use.fetch_add(bytes - self.bytes, Ordering::SeqCst);
        } else if bytes < self.bytes {
            in_use.fetch_sub(self.bytes - bytes, Ordering::SeqCst);
            self.budget.0.notify_freed();
        }
        self.bytes = bytes;
    }

    /// Grows to what `wanted` makes of the most that is fair, and returns the bytes it then has.
    fn attempt(&self, wanted: impl Fn(usize) -> usize) -> usize {
        let mut grown = self.bytes;
        // Fails only if there is nothing to take.
        let _ = self.budget.0.in_use.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |in_use| {
            grown = wanted(self.budget.state(in_use).most_for(self.bytes)).max(self.bytes);
            (grown > self.bytes).then(|| in_use + (grown - self.bytes))
        });
        grown
    }
}

impl Shared {
    fn notify_freed(&self) {
        if self.is_short.load(Ordering::SeqCst) && self.is_short.swap(false, Ordering::SeqCst) {
            self.freed.notify_waiters();
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMIT: usize = 1000;
    const MINIMUM: usize = 10;

    #[derive(Clone, Debug)]
    enum Step {
        GrowUpTo(usize, usize),
        TryGrowTo(usize, usize),
        Shrink(usize, usize),
        Drop(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let holder = || 0..8_usize;
        let bytes = || prop_oneof![0..2 * MINIMUM, 0..2 * LIMIT];
        prop_oneof![
            (holder(), bytes()).prop_map(|(holder, bytes)| Step::GrowUpTo(holder, bytes)),
            (holder(), bytes()).prop_map(|(holder, bytes)| Step::TryGrowTo(holder, bytes)),
            (holder(), bytes()).prop_map(|(holder, bytes)| Step::Shrink(holder, bytes)),
            holder().prop_map(Step::Drop),
        ]
    }

    /// Whatever holders do, the budget counts what they have, exceeds its limit by their minimum at most,
    /// never shrinks a share that grows, and refuses nobody the minimum.
    #[test]
    fn keeps_its_limit() {
        proptest!(|(steps in prop::collection::vec(step(), 1..200))| {
            let budget = Budget::new(LIMIT, MINIMUM);
            let mut shares: Vec<Share> = (0..8).map(|_| budget.share()).collect();
            for step in steps {
                match step {
                    Step::GrowUpTo(holder, bytes) => {
                        let (before, most) = (shares[holder].bytes(), shares[holder].allowance());
                        let granted = shares[holder].grow_up_to(bytes);
                        prop_assert_eq!(shares[holder].bytes(), before + granted);
                        prop_assert_eq!(shares[holder].bytes(), bytes.min(most).max(before));
                    }
                    Step::TryGrowTo(holder, bytes) => {
                        let (before, most) = (shares[holder].bytes(), shares[holder].allowance());
                        let is_granted = shares[holder].try_grow_to(bytes);
                        prop_assert_eq!(is_granted, bytes <= most.max(before));
                        let expected = if is_granted { bytes.max(before) } else { before };
                        prop_assert_eq!(shares[holder].bytes(), expected);
                    }
                    Step::Shrink(holder, bytes) => {
                        let bytes = bytes.min(shares[holder].bytes());
                        shares[holder].set(bytes);
                    }
                    Step::Drop(holder) => shares[holder] = budget.share(),
                }
                let held: usize = shares.iter().map(Share::bytes).sum();
                prop_assert_eq!(budget.in_use(), held);
                let guaranteed: usize = shares.iter().map(|it| it.bytes().min(MINIMUM)).sum();
                prop_assert!(held <= LIMIT + guaranteed);
            }
            drop(shares);
            prop_assert_eq!(budget.in_use(), 0);
        });
    }

    #[test]
    fn threads_never_take_more_than_the_limit() {
        let budget = Budget::new(LIMIT, 0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for bytes in 0..20_000 {
                        let mut share = budget.share();
                        share.grow_up_to(bytes % LIMIT);
                        assert!(budget.in_use() <= LIMIT);
                    }
                });
            }
        });
        assert_eq!(budget.in_use(), 0);
    }

    #[tokio::test]
    async fn a_refused_holder_is_woken_when_bytes_are_given_back() {
        let budget = Budget::new(LIMIT, MINIMUM);
        let (mut first, mut second) = (budget.share(), budget.share());
        assert!(first.try_grow_to(LIMIT / 2));
        let mut freed = std::pin::pin!(budget.freed());
        tokio::select! {
            biased;
            () = &mut freed => panic!("nothing was given back"),
            () = std::future::ready(()) => {}
        }
        assert!(!second.try_grow_to(LIMIT / 2));
        assert_eq!(budget.refusals(), 1);
        first.set(0);
        freed.await;
        assert!(second.try_grow_to(LIMIT / 2));
    }
}
