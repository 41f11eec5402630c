//! Limits on DNS look-ups in progress. A part is reserved for transactional mail, and under contention an account holds
//! at most half.

use std::collections::HashMap;

use crate::base::id::AccountId;
use crate::domain::stream::Stream;

/// Of so many parts one is kept for transactional mail.
const RESERVED_PART: usize = 4;

/// The part of `max` that `stream` may not take.
pub const fn reserved(stream: Stream, max: usize) -> usize {
    match stream {
        Stream::Transactional => 0,
        Stream::Marketing => max / RESERVED_PART,
    }
}

/// The `MAX` places for look-ups, and who has taken how many of them.
#[derive(Debug, Default)]
pub struct LookUpPlaces<const MAX: usize> {
    taken: usize,
    /// Those of names that marketing asked for.
    marketing: usize,
    accounts: HashMap<AccountId, usize>,
}

impl<const MAX: usize> LookUpPlaces<MAX> {
    /// Whether there is a place for a name that `stream` asks for.
    pub fn is_free(&self, stream: Stream) -> bool {
        let marketing = usize::from(stream == Stream::Marketing);
        self.taken < MAX && self.marketing + marketing <= MAX - reserved(stream, MAX)
    }

    /// Takes a place.
    pub fn take(&mut self, (account, stream): (AccountId, Stream)) {
        self.taken += 1;
        self.marketing += usize::from(stream == Stream::Marketing);
        *self.accounts.entry(account).or_default() += 1;
    }

    /// Takes a place if there is one and the account has less than half of them.
    pub fn take_of_half(&mut self, asker: (AccountId, Stream)) -> bool {
        let has_share = self.accounts.get(&asker.0).is_none_or(|taken| *taken < MAX / 2);
        let is_free = has_share && self.is_free(asker.1);
        if is_free {
            self.take(asker);
        }
        is_free
    }

    /// Gives back a place that the asker has taken.
    pub fn free(&mut self, (account, stream): (AccountId, Stream)) {
        self.taken -= 1;
        self.marketing -= usize::from(stream == Stream::Marketing);
        if let Some(taken) = self.accounts.get_mut(&account) {
            *taken -= 1;
            if *taken == 0 {
                self.accounts.remove(&account);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::Ulid;

    fn account(number: u8) -> AccountId {
        AccountId(Ulid([number; 16]))
    }

    #[test]
    fn an_account_held_to_half_leaves_the_other_half_and_marketing_a_quarter() {
        let mut places = LookUpPlaces::<16>::default();
        let mut taken = |number, stream| (0..100).filter(|_| places.take_of_half((account(number), stream))).count();
        assert_eq!([taken(1, Stream::Transactional), taken(2, Stream::Transactional)], [8, 8]);
        let mut places = LookUpPlaces::<16>::default();
        let mut taken = |number| (0..100).filter(|_| places.take_of_half((account(number), Stream::Marketing))).count();
        assert_eq!([taken(1), taken(2), taken(3)], [8, 4, 0]);
        assert!(places.is_free(Stream::Transactional) && !places.is_free(Stream::Marketing));
        places.free((account(1), Stream::Marketing));
        assert!(places.is_free(Stream::Marketing));
    }
}
