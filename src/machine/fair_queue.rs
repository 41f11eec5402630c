//! A queue that many accounts share: each has its own line, and the accounts take turns. Within an account the order is
//! first in, first out.

use std::collections::{HashMap, VecDeque};

use crate::base::id::AccountId;

/// Items by account.
#[derive(Debug)]
pub struct FairQueue<T> {
    lines: HashMap<AccountId, VecDeque<T>>,
    /// The accounts with items, the one whose turn it is first.
    turns: VecDeque<AccountId>,
    len: usize,
}

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        Self { lines: HashMap::new(), turns: VecDeque::new(), len: 0 }
    }
}

impl<T> FairQueue<T> {
    /// The number of items.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no item.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an item behind the others of its account.
    pub fn push(&mut self, account: AccountId, item: T) {
        let line = self.lines.entry(account).or_default();
        if line.is_empty() {
            self.turns.push_back(account);
        }
        line.push_back(item);
        self.len += 1;
    }

    /// Takes the first item of the account whose turn it is. The next turn is another account's.
    pub fn pop(&mut self) -> Option<T> {
        let account = self.turns.pop_front()?;
        let line = self.lines.get_mut(&account)?;
        let item = line.pop_front()?;
        self.len -= 1;
        if line.is_empty() {
            self.lines.remove(&account);
        } else {
            self.turns.push_back(account);
        }
        Some(item)
    }

    /// The items, in no order that means anything.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.turns.iter().filter_map(|account| self.lines.get(account)).flatten()
    }

    /// Takes out the items for which `leaves` holds.
    pub fn extract(&mut self, leaves: impl Fn(&T) -> bool) -> Vec<T> {
        let mut out = Vec::new();
        for account in &self.turns {
            let Some(line) = self.lines.get_mut(account) else { continue };
            if line.iter().any(&leaves) {
                let (gone, kept): (VecDeque<T>, VecDeque<T>) = std::mem::take(line).into_iter().partition(&leaves);
                out.extend(gone);
                *line = kept;
            }
        }
        self.len -= out.len();
        self.lines.retain(|_, line| !line.is_empty());
        let lines = &self.lines;
        self.turns.retain(|account| lines.contains_key(account));
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
    fn accounts_take_turns_however_long_the_line_of_one_is() {
        let mut queue = FairQueue::default();
        (0..1000).for_each(|n| queue.push(account(1), n));
        queue.push(account(2), 5000);
        queue.push(account(3), 6000);
        let first: Vec<_> = std::iter::from_fn(|| queue.pop()).take(5).collect();
        assert_eq!(first, [0, 5000, 6000, 1, 2]);
    }

    proptest! {
        #[test]
        fn every_item_leaves_once_and_in_the_order_of_its_account(items in prop::collection::vec((0u8..4, 0u8..9), 0..60)) {
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
