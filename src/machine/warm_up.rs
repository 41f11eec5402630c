//! Daily caps of relays that warm up: the number of messages that a relay may send to a site on one day.
//!
//! The accounts share a cap, first come, first served. So that one account's mail does not make others wait until
//! midnight, accounts that have sent little of it may exceed the cap, together by a quarter. The store has no counts of
//! accounts, so the cap is not exceeded on a day on which mail was sent before the service started.

use std::collections::HashMap;

use super::relay_table::RelayNumber;
use crate::base::id::AccountId;

/// Fraction by which the accounts that have sent little may exceed a cap: one of this many parts.
const EXTRA_PART: u32 = 4;
/// Fraction of a cap up to which an account has sent little: one of this many parts, and at least one message.
const LITTLE_PART: u32 = 16;

/// The counts of all relays and sites.
#[derive(Debug, Default)]
pub struct WarmUpCounts(HashMap<(RelayNumber, String), Count>);

/// Number of messages that a relay has sent to a site on one day, and of those in flight.
#[derive(Debug)]
struct Count {
    day: u32,
    /// Number of messages sent before the service started.
    stored: u32,
    taken: u32,
    in_flight: u32,
    /// Number of messages of each account, sent or in flight, since the start of the service.
    accounts: HashMap<AccountId, u32>,
}

/// A daily cap.
#[derive(Debug, Clone, Copy)]
pub struct DailyCap {
    /// Day, counted from the epoch.
    pub day: u32,
    /// Number of messages.
    pub messages: u32,
}

impl Count {
    fn is_used_up(&self, account: AccountId, cap: u32) -> bool {
        let has_little = self.accounts.get(&account).is_none_or(|own| *own < (cap / LITTLE_PART).max(1));
        let extra = if has_little && self.stored == 0 { cap.div_ceil(EXTRA_PART) } else { 0 };
        self.stored + self.taken + self.in_flight >= cap.saturating_add(extra)
    }
}

impl WarmUpCounts {
    fn count(&self, relay: RelayNumber, site: &str, day: u32) -> Option<&Count> {
        self.0.get(&(relay, site.to_owned())).filter(|count| count.day == day)
    }

    fn count_mut(&mut self, relay: RelayNumber, site: &str, day: u32) -> Option<&mut Count> {
        self.0.get_mut(&(relay, site.to_owned())).filter(|count| count.day == day)
    }

    /// Returns whether a relay may send no message of the account to `site` today. Returns `None` if the day's count
    /// must be read from the store first.
    pub fn is_used_up(&self, relay: RelayNumber, site: &str, account: AccountId, cap: DailyCap) -> Option<bool> {
        self.count(relay, site, cap.day).map(|count| count.is_used_up(account, cap.messages))
    }

    /// Sets the stored count of `day`, unless a count of that day is known. Counts of other days are removed.
    pub fn learn(&mut self, relay: RelayNumber, site: &str, day: u32, stored: u32) {
        if self.count(relay, site, day).is_none() {
            self.0.retain(|_, count| count.day == day);
            let count = Count { day, stored, taken: 0, in_flight: 0, accounts: HashMap::new() };
            self.0.insert((relay, site.to_owned()), count);
        }
    }

    /// Reserves a part of the cap for one message of the account. Returns false if it may have none, and `None` as
    /// [`Self::is_used_up`] does.
    pub fn take_share(&mut self, relay: RelayNumber, site: &str, account: AccountId, cap: DailyCap) -> Option<bool> {
        let count = self.count_mut(relay, site, cap.day)?;
        if count.is_used_up(account, cap.messages) {
            return Some(false);
        }
        count.in_flight += 1;
        *count.accounts.entry(account).or_default() += 1;
        Some(true)
    }

    /// Releases a part that was reserved on `day`. `was_used` says whether the site accepted the message.
    pub fn end_share(&mut self, relay: RelayNumber, site: &str, account: AccountId, day: u32, was_used: bool) {
        let Some(count) = self.count_mut(relay, site, day) else { return };
        count.in_flight = count.in_flight.saturating_sub(1);
        count.taken += u32::from(was_used);
        if !was_used && let Some(own) = count.accounts.get_mut(&account) {
            *own = own.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::Ulid;
    use proptest::prelude::*;

    const SITE: &str = "a.test";
    const OWN: AccountId = AccountId(Ulid([1; 16]));

    const fn cap(day: u32, messages: u32) -> DailyCap {
        DailyCap { day, messages }
    }

    #[test]
    fn a_daily_cap_is_read_from_the_store_once_and_begins_again_the_next_day() {
        let mut counts = WarmUpCounts::default();
        assert_eq!(counts.take_share(0, SITE, OWN, cap(7, 10)), None);
        counts.learn(0, SITE, 7, 9);
        let both = [(); 2].map(|()| counts.take_share(0, SITE, OWN, cap(7, 10)));
        assert_eq!(both, [Some(true), Some(false)]);
        counts.learn(0, SITE, 7, 0);
        assert_eq!(counts.is_used_up(0, SITE, OWN, cap(7, 10)), Some(true), "what is known counts");
        assert_eq!(counts.is_used_up(0, SITE, OWN, cap(8, 10)), None);
        counts.learn(0, SITE, 8, 0);
        counts.end_share(0, SITE, OWN, 7, true);
        assert_eq!(counts.is_used_up(0, SITE, OWN, cap(8, 1)), Some(false), "a share of yesterday");
    }

    #[test]
    fn accounts_that_have_sent_little_exceed_the_cap_that_another_has_used() {
        let mut counts = WarmUpCounts::default();
        counts.learn(0, SITE, 1, 0);
        let mut sends = |account: u8| {
            let account = AccountId(Ulid([account; 16]));
            (0..100).take_while(|_| counts.take_share(0, SITE, account, cap(1, 32)) == Some(true)).count()
        };
        assert_eq!([sends(1), sends(2), sends(1), sends(3), sends(4), sends(5), sends(6)], [32, 2, 0, 2, 2, 2, 0]);
    }

    #[test]
    fn a_cap_is_not_exceeded_on_a_day_on_which_mail_was_sent_before_the_start() {
        let mut counts = WarmUpCounts::default();
        counts.learn(0, SITE, 1, 4);
        assert_eq!(counts.take_share(0, SITE, OWN, cap(1, 4)), Some(false));
    }

    proptest! {
        #[test]
        fn a_lone_account_sends_no_more_messages_than_the_cap(most in 0u32..6, steps in prop::collection::vec(0u8..3, 0..60)) {
            let (mut counts, mut taken, mut in_flight) = (WarmUpCounts::default(), 0, 0);
            counts.learn(0, SITE, 1, 0);
            for step in steps {
                match step {
                    0 => {
                        let is_free = counts.take_share(0, SITE, OWN, cap(1, most)) == Some(true);
                        prop_assert_eq!(is_free, taken + in_flight < most);
                        in_flight += u32::from(is_free);
                    }
                    1 | 2 if in_flight > 0 => {
                        counts.end_share(0, SITE, OWN, 1, step == 1);
                        in_flight -= 1;
                        taken += u32::from(step == 1);
                    }
                    _ => {}
                }
            }
        }
    }
}
