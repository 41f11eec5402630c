//! A queue that many owners share, mostly accounts: each owner has its own queue, and the owners take turns. Within an
//! owner's queue the order is first in, first out.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use crate::base::id::AccountId;

/// Items by owner.
#[derive(Debug, Clone)]
pub struct FairQueue<T, O = AccountId> {
    lines: HashMap<O, VecDeque<T>>,
    /// The owners with items, next turn first.
    turns: VecDeque<O>,
    len: usize,
}

impl<T, O> Default for FairQueue<T, O> {
    fn default() -> Self {
        Self { lines: HashMap::new(), turns: VecDeque::new(), len: 0 }
    }
}

impl<T, O: Copy + Eq + Hash> FairQueue<T, O> {
    /// Returns the number of items.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the queue is empty.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an item after the others of its owner.
    pub fn push(&mut self, owner: O, item: T) {
        let line = self.lines.entry(owner).or_default();
        if line.is_empty() {
            self.turns.push_back(owner);
        }
        line.push_back(item);
        self.len += 1;
    }

    /// Adds an item before the others of its owner.
    pub fn push_front(&mut self, owner: O, item: T) {
        let line = self.lines.entry(owner).or_default();
        if line.is_empty() {
            self.turns.push_back(owner);
        }
        line.push_front(item);
        self.len += 1;
    }

    /// Takes the first item of the next owner. Then the turn passes to another owner.
    pub fn pop(&mut self) -> Option<T> {
        self.pop_of(|_| true)
    }

    /// Takes the first item of the next owner for which `may` returns true.
    pub fn pop_of(&mut self, may: impl Fn(&O) -> bool) -> Option<T> {
        self.pop_with_owner(may).map(|(_, item)| item)
    }

    /// Takes the first item of the next owner for which `may` returns true, and returns the owner too.
    pub fn pop_with_owner(&mut self, may: impl Fn(&O) -> bool) -> Option<(O, T)> {
        let turn = self.turns.iter().position(may)?;
        self.take(turn, 0)
    }

    /// Takes the first item for which `may` returns true, of the next owner who has one, and returns the owner too.
    pub fn pop_item(&mut self, may: impl Fn(O, &T) -> bool) -> Option<(O, T)> {
        let place = |owner: &O| self.lines.get(owner)?.iter().position(|item| may(*owner, item));
        let (turn, place) = self.turns.iter().enumerate().find_map(|(turn, owner)| Some((turn, place(owner)?)))?;
        self.take(turn, place)
    }

    /// Takes an item of the owner at this turn. Then the turn passes to another owner.
    fn take(&mut self, turn: usize, place: usize) -> Option<(O, T)> {
        let owner = self.turns.remove(turn)?;
        let line = self.lines.get_mut(&owner)?;
        let item = line.remove(place)?;
        self.len -= 1;
        if line.is_empty() {
            self.lines.remove(&owner);
        } else {
            self.turns.push_back(owner);
        }
        Some((owner, item))
    }

    /// Returns the number of owners with items.
    pub fn owners(&self) -> usize {
        self.turns.len()
    }

    /// Returns the owner whose turn is next, among those for which `may` returns true.
    pub fn next_owner(&self, may: impl Fn(&O) -> bool) -> Option<O> {
        self.turns.iter().copied().find(may)
    }

    /// Returns whether an owner for which `may` returns true has an item.
    pub fn has_of(&self, may: impl Fn(&O) -> bool) -> bool {
        self.turns.iter().any(may)
    }

    /// Iterates over the items, in arbitrary order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.turns.iter().filter_map(|owner| self.lines.get(owner)).flatten()
    }

    /// Removes up to `count` items, always the last item of the longest queue.
    pub fn shed(&mut self, count: usize) -> Vec<T> {
        let mut lengths: Vec<usize> = self.lines.values().map(VecDeque::len).collect();
        lengths.sort_unstable();
        // The length to which the longest queues are cut.
        let (mut level, mut left) = (lengths.pop().unwrap_or_default(), count.min(self.len));
        let mut longest = 1;
        while left > 0 {
            let next = lengths.last().copied().unwrap_or_default();
            if next == level && !lengths.is_empty() {
                lengths.pop();
                longest += 1;
                continue;
            }
            let down = (level - next).min(left.div_ceil(longest));
            level -= down;
            left = left.saturating_sub(down * longest);
        }
        // First cut to one above the level, then to the level: the last step may have to leave some queues one longer.
        let mut out = Vec::with_capacity(count.min(self.len));
        for level in [level + 1, level] {
            for owner in &self.turns {
                let Some(line) = self.lines.get_mut(owner) else { continue };
                let excess = line.len().saturating_sub(level).min(count.saturating_sub(out.len()));
                out.extend(line.split_off(line.len() - excess));
            }
        }
        self.len -= out.len();
        self.forget_empty_lines();
        out
    }

    fn forget_empty_lines(&mut self) {
        self.lines.retain(|_, line| !line.is_empty());
        let lines = &self.lines;
        self.turns.retain(|owner| lines.contains_key(owner));
    }

    /// Removes the items for which `leaves` returns true.
    pub fn extract(&mut self, leaves: impl Fn(&T) -> bool) -> Vec<T> {
        let mut out = Vec::new();
        for owner in &self.turns {
            let Some(line) = self.lines.get_mut(owner) else { continue };
            if line.iter().any(&leaves) {
                let (gone, kept): (VecDeque<T>, VecDeque<T>) = std::mem::take(line).into_iter().partition(&leaves);
                out.extend(gone);
                *line = kept;
            }
        }
        self.len -= out.len();
        self.forget_empty_lines();
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::Ulid;
    use proptest::prelude::*;

    fn account(number: u8) -> AccountId {
        AccountId(Ulid([number; 16]))
    }

    #[test]
    fn accounts_take_turns_regardless_of_their_queue_lengths() {
        let mut queue = FairQueue::default();
        (0..1000).for_each(|n| queue.push(account(1), n));
        queue.push(account(2), 5000);
        queue.push(account(3), 6000);
        let first: Vec<_> = std::iter::from_fn(|| queue.pop()).take(5).collect();
        assert_eq!(first, [0, 5000, 6000, 1, 2]);
    }

    #[test]
    fn the_longest_queue_sheds_first_and_from_its_end() {
        let mut queue = FairQueue::default();
        (0..10).for_each(|n| queue.push(account(1), n));
        (100..104).for_each(|n| queue.push(account(2), n));
        let mut first = queue.shed(6);
        first.sort_unstable();
        assert_eq!(first, [4, 5, 6, 7, 8, 9]);
        let mut shed = queue.shed(3);
        shed.sort_unstable();
        assert!(shed == [2, 3, 103] || shed == [3, 102, 103], "{shed:?}");
        assert_eq!((queue.len(), queue.shed(100).len(), queue.len()), (5, 5, 0));
        assert_eq!(queue.pop(), None);
    }

    proptest! {
        #[test]
        fn shedding_removes_the_requested_number_and_levels_the_queues(lines in prop::collection::vec(0usize..20, 0..6), count in 0usize..60) {
            let mut queue = FairQueue::default();
            for (number, length) in lines.iter().enumerate() {
                (0..*length).for_each(|n| queue.push(account(u8::try_from(number).unwrap()), (number, n)));
            }
            let before = queue.len();
            let shed = queue.shed(count);
            prop_assert_eq!(shed.len(), count.min(before));
            prop_assert_eq!(queue.len() + shed.len(), before);
            let left: Vec<_> = (0..lines.len()).map(|n| queue.iter().filter(|item| item.0 == n).count()).collect();
            let longest = left.iter().copied().max().unwrap_or_default();
            for (number, line) in left.iter().enumerate() {
                prop_assert!(*line == lines[number] || *line + 1 >= longest, "{left:?} of {lines:?}");
            }
        }

        #[test]
        fn every_item_leaves_once_and_in_the_order_of_its_account_queue(items in prop::collection::vec((0u8..4, 0u8..9), 0..60)) {
            let mut queue = FairQueue::default();
            for (n, (number, kind)) in items.iter().enumerate() {
                queue.push(account(*number), (*number, n, *kind));
            }
            let mut out = queue.extract(|(_, _, kind)| *kind == 0);
            prop_assert_eq!(queue.len(), queue.iter().count());
            let mut last = [None; 4];
            while let Some((number, n, kind)) = queue.pop() {
                prop_assert!(last[usize::from(number)] < Some(n));
                last[usize::from(number)] = Some(n);
                out.push((number, n, kind));
            }
            prop_assert!(queue.is_empty());
            out.sort_by_key(|(_, n, _)| *n);
            prop_assert!(out.iter().map(|(_, n, _)| *n).eq(0..items.len()));
        }
    }
}
