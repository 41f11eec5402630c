//! A limited supply, such as memory for request bodies, lent to many holders, with a total limit and a limit per
//! holder.
//!
//! ```text
//! all   |#####------|###|#|..............................|
//! each  |#####------| at most, so one holder never takes everything
//! ```
//!
//! Memory use grows only with the number of current holders.

use std::collections::HashMap;
use std::hash::Hash;

/// The loans from one supply.
#[derive(Debug)]
pub struct Shares<K> {
    all: usize,
    each: usize,
    lent: usize,
    by_holder: HashMap<K, usize>,
}

/// Error: the supply, or the holder's share of it, is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too much is in use")]
pub struct Exhausted;

impl<K: Eq + Hash + Clone> Shares<K> {
    /// Creates a supply of `all` units, of which one holder may have `each`.
    pub fn new(all: usize, each: usize) -> Self {
        Self { all, each, lent: 0, by_holder: HashMap::new() }
    }

    /// Lends `units` to `holder`.
    ///
    /// # Errors
    /// [`Exhausted`] if that exceeds either limit; then nothing is lent.
    pub fn take(&mut self, holder: &K, units: usize) -> Result<(), Exhausted> {
        let held = self.by_holder.get(holder).copied().unwrap_or(0).saturating_add(units);
        let lent = self.lent.saturating_add(units);
        if held > self.each || lent > self.all {
            return Err(Exhausted);
        }
        if units > 0 {
            self.by_holder.insert(holder.clone(), held);
            self.lent = lent;
        }
        Ok(())
    }

    /// Lends `units` to `holder` even beyond the limits, so that its next request is refused.
    pub fn take_beyond_limit(&mut self, holder: &K, units: usize) {
        if units > 0 {
            let held = self.by_holder.entry(holder.clone()).or_insert(0);
            *held = held.saturating_add(units);
            self.lent = self.lent.saturating_add(units);
        }
    }

    /// Returns the maximum for one holder.
    pub const fn each(&self) -> usize {
        self.each
    }

    /// Returns `units` of `holder` to the supply.
    pub fn give_back(&mut self, holder: &K, units: usize) {
        let Some(held) = self.by_holder.get_mut(holder) else { return };
        let units = units.min(*held);
        *held -= units;
        self.lent -= units;
        if *held == 0 {
            self.by_holder.remove(holder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_holder_gets_at_most_its_share_and_others_get_the_rest() {
        let mut shares = Shares::new(10, 4);
        assert_eq!(shares.take(&"a", 4), Ok(()));
        assert_eq!(shares.take(&"a", 1), Err(Exhausted));
        assert_eq!(shares.take(&"b", 4), Ok(()));
        assert_eq!(shares.take(&"c", 3), Err(Exhausted), "the holders have all 10 units");
        assert_eq!(shares.take(&"c", 2), Ok(()));
        shares.give_back(&"a", 4);
        assert_eq!(shares.take(&"c", 2), Ok(()));
    }

    #[test]
    fn an_overdrawn_holder_gets_nothing_until_it_returns_units() {
        let mut shares = Shares::new(10, 4);
        shares.take_beyond_limit(&"a", 6);
        assert_eq!(shares.take(&"a", 1), Err(Exhausted));
        assert_eq!(shares.take(&"b", 4), Ok(()));
        shares.give_back(&"a", 6);
        assert_eq!(shares.take(&"a", 4), Ok(()));
    }

    proptest! {
        #[test]
        fn the_lent_total_is_the_sum_of_all_holdings(steps in prop::collection::vec((0_u8..4, 0_usize..9, any::<bool>()), 0..200)) {
            let mut shares = Shares::new(20, 8);
            for (holder, units, is_taken) in steps {
                if is_taken {
                    let _taken = shares.take(&holder, units);
                } else {
                    shares.give_back(&holder, units);
                }
                prop_assert_eq!(shares.lent, shares.by_holder.values().sum::<usize>());
                prop_assert!(shares.lent <= 20 && shares.by_holder.values().all(|held| (1..=8).contains(held)));
            }
        }
    }
}
