//! A limited supply, such as memory for request bodies, lent to many holders, with a total limit and a limit per
//! holder.
//!
//! ```text
//! all   |#####------|###|#|..............................|
//! each  |#####------| at most, so one holder never takes everything
//! ```
//!
//! With a reserve, a few holders never take everything. Once less than a quarter of the supply is left, a holder with a
//! quarter of its share gets no more.
//!
//! Memory use grows only with the number of current holders.

use std::collections::HashMap;
use std::hash::Hash;

/// The loans from one supply.
#[derive(Debug)]
pub struct Shares<K> {
    all: usize,
    each: usize,
    has_reserve: bool,
    lent: usize,
    by_holder: HashMap<K, usize>,
    /// Units beyond the limits. They count for their holder alone.
    overdrawn: HashMap<K, usize>,
}

/// Error: the supply, or the holder's share of it, is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the supply, or the holder's share of it, is used up")]
pub struct SupplyExhausted;

impl<K: Eq + Hash + Clone> Shares<K> {
    /// Creates a supply of `all` units, of which one holder may have `each`.
    pub fn new(all: usize, each: usize) -> Self {
        Self { all, each, has_reserve: false, lent: 0, by_holder: HashMap::new(), overdrawn: HashMap::new() }
    }

    /// Creates a supply whose last quarter is for holders that hold little.
    pub fn with_reserve(all: usize, each: usize) -> Self {
        Self { has_reserve: true, ..Self::new(all, each) }
    }

    /// Lends `units` to `holder`.
    ///
    /// # Errors
    /// [`SupplyExhausted`] if that exceeds either limit; then nothing is lent.
    pub fn take(&mut self, holder: &K, units: usize) -> Result<(), SupplyExhausted> {
        let held = self.held(holder).saturating_add(units);
        let lent = self.lent.saturating_add(units);
        let is_scarce = self.has_reserve && lent > self.all - self.all / 4;
        let each = if is_scarce { self.each.div_ceil(4) } else { self.each };
        let overdrawn = self.overdrawn.get(holder).copied().unwrap_or(0);
        if held.saturating_add(overdrawn) > each || lent > self.all {
            return Err(SupplyExhausted);
        }
        if units > 0 {
            self.by_holder.insert(holder.clone(), held);
            self.lent = lent;
        }
        Ok(())
    }

    /// Lends `units` to `holder` even beyond the limits, so that its next request is refused. Others' limits are not
    /// affected.
    pub fn take_beyond_limit(&mut self, holder: &K, units: usize) {
        if units > 0 {
            let overdrawn = self.overdrawn.entry(holder.clone()).or_insert(0);
            *overdrawn = overdrawn.saturating_add(units);
        }
    }

    /// Returns the maximum for one holder.
    pub const fn each(&self) -> usize {
        self.each
    }

    /// Returns the number of units that `holder` has.
    pub fn held(&self, holder: &K) -> usize {
        self.by_holder.get(holder).copied().unwrap_or(0)
    }

    /// Returns the number of units that nobody has.
    pub const fn free(&self) -> usize {
        self.all - self.lent
    }

    /// Returns `units` of `holder` to the supply.
    pub fn give_back(&mut self, holder: &K, units: usize) {
        let overdrawn = reduce(&mut self.overdrawn, holder, units);
        self.lent -= reduce(&mut self.by_holder, holder, units - overdrawn);
    }
}

/// Takes up to `units` from the holder's entry, and returns how many that were.
fn reduce<K: Eq + Hash>(entries: &mut HashMap<K, usize>, holder: &K, units: usize) -> usize {
    let Some(entry) = entries.get_mut(holder) else { return 0 };
    let units = units.min(*entry);
    *entry -= units;
    if *entry == 0 {
        entries.remove(holder);
    }
    units
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_holder_gets_at_most_its_share_and_others_get_the_rest() {
        let mut shares = Shares::new(10, 4);
        assert_eq!(shares.take(&"a", 4), Ok(()));
        assert_eq!(shares.take(&"a", 1), Err(SupplyExhausted));
        assert_eq!(shares.take(&"b", 4), Ok(()));
        assert_eq!(shares.take(&"c", 3), Err(SupplyExhausted), "the holders have all 10 units");
        assert_eq!(shares.take(&"c", 2), Ok(()));
        shares.give_back(&"a", 4);
        assert_eq!(shares.take(&"c", 2), Ok(()));
    }

    #[test]
    fn the_reserve_is_for_holders_with_little() {
        let mut shares = Shares::with_reserve(64, 16);
        for holder in ["a", "b", "c"] {
            assert_eq!(shares.take(&holder, 16), Ok(()));
            assert_eq!(shares.take(&holder, 1), Err(SupplyExhausted));
        }
        assert_eq!(shares.take(&"d", 5), Err(SupplyExhausted), "less than a quarter is left");
        for holder in ["d", "e", "f", "g"] {
            assert_eq!(shares.take(&holder, 4), Ok(()));
        }
        assert_eq!(shares.take(&"h", 1), Err(SupplyExhausted), "the holders have all units");
        shares.give_back(&"a", 16);
        assert_eq!(shares.take(&"h", 1), Ok(()));
    }

    #[test]
    fn an_overdrawn_holder_gets_nothing_until_it_returns_units() {
        let mut shares = Shares::new(64, 16);
        shares.take_beyond_limit(&"a", 100);
        assert_eq!(shares.take(&"a", 1), Err(SupplyExhausted));
        assert_eq!(shares.take(&"b", 16), Ok(()), "another holder is not affected");
        shares.give_back(&"a", 100);
        assert_eq!(shares.take(&"a", 16), Ok(()));
        shares.give_back(&"a", 16);
        assert_eq!((shares.lent, shares.overdrawn.len()), (16, 0));
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
