//! How much of a budget one holder may have.

/// A budget at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct BudgetState {
    /// Bytes of the whole budget.
    pub(super) limit: usize,
    /// Bytes that every holder may have.
    pub(super) minimum: usize,
    /// Bytes of all holders together.
    pub(super) in_use: usize,
}

impl BudgetState {
    /// Returns the most that a holder of `held` bytes may have: it never gets more than it leaves free.
    ///
    /// A single holder thus gets half of the budget, and each of `n` holders that want all they can get the
    /// `n + 1`th part. There always is something left for a holder that comes late.
    pub(super) const fn most_for(&self, held: usize) -> usize {
        let free = self.limit.saturating_sub(self.in_use);
        // Growing by `n` leaves `free - n`, which has to be at least `held + n`.
        let fair = held + free.saturating_sub(held) / 2;
        if fair > self.minimum { fair } else { self.minimum }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMIT: usize = 1000;
    const MINIMUM: usize = 10;

    fn state(in_use: usize) -> BudgetState {
        BudgetState { limit: LIMIT, minimum: MINIMUM, in_use }
    }

    /// Lets each of `holders` in turn take all it may have, until none can take more.
    fn greedy(holders: usize) -> Vec<usize> {
        let mut held = vec![0; holders];
        loop {
            let before = held.clone();
            for index in 0..holders {
                let most = state(held.iter().sum()).most_for(held[index]);
                held[index] = held[index].max(most.min(held[index] + 1));
            }
            if before == held {
                return held;
            }
        }
    }

    #[test]
    fn greedy_holders_end_with_equal_shares() {
        for (holders, share) in [(1, 500), (2, 333), (3, 250), (4, 200), (9, 100)] {
            for held in greedy(holders) {
                assert!(held.abs_diff(share) <= 1, "one of {holders} has {held}");
            }
        }
        assert!(greedy(500).iter().all(|held| *held == MINIMUM));
    }

    #[test]
    fn nobody_gets_more_than_it_leaves_free_except_the_minimum() {
        proptest!(|(in_use in 0..2 * LIMIT, held in 0..LIMIT)| {
            prop_assume!(held <= in_use);
            let most = state(in_use).most_for(held);
            prop_assert!(most >= MINIMUM);
            if most > held.max(MINIMUM) {
                prop_assert!(most <= LIMIT - (in_use + most - held));
            }
        });
    }
}
