//! Request rates of all keys, accounts and panel users, in memory. A restart starts empty (contract 3 "Request rate").

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::settings::Settings;
use super::{Caller, Engine};
use crate::base::id::{AccountId, KeyId, UserId};
use crate::machine::rate::{Rate, RateLimited, RateView};

/// Number of requests between two sweeps of idle keys.
const SWEEP_EVERY: u32 = 4096;
/// Maximum number of requests of one panel user in any 60 seconds. A person never reaches it. It stops a stolen session
/// from using all CPU time with searches, or from flushing its traces out of the audit log within minutes.
pub const PANEL_REQUESTS_PER_MINUTE: u32 = 3000;

/// One sliding window for each key in use, for each account, and for each panel user.
#[derive(Default)]
pub struct Rates(Mutex<Windows>);

#[derive(Default)]
struct Windows {
    by_key: HashMap<KeyId, Rate>,
    by_account: HashMap<AccountId, Rate>,
    by_user: HashMap<UserId, Rate>,
    until_sweep: u32,
}

impl Rates {
    /// Counts one request of a key of `account` at monotonic time `now`. A refused request does not count. Returns the
    /// key's own window.
    ///
    /// # Errors
    /// [`RateLimited`] if the key, or all keys of the account together, reached `limits` in the last 60 seconds.
    pub fn admit(
        &self,
        account: AccountId,
        key: KeyId,
        limits: RequestLimits,
        now: Duration,
    ) -> Result<RateView, RateLimited> {
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        windows.sweep(now);
        let Windows { by_key, by_account, .. } = &mut *windows;
        let (of_key, of_account) = (by_key.entry(key).or_default(), by_account.entry(account).or_default());
        let of_all = of_account.view(limits.account, now);
        if of_all.remaining == 0 {
            let view = of_key.view(limits.key, now);
            let retry_after_secs = of_all.reset_secs.max(if view.remaining == 0 { view.reset_secs } else { 1 });
            return Err(RateLimited { retry_after_secs, view });
        }
        let view = of_key.admit(limits.key, now)?;
        of_account.admit(limits.account, now)?;
        Ok(view)
    }

    /// Counts one request of a panel user at monotonic time `now`.
    ///
    /// # Errors
    /// [`RateLimited`] after [`PANEL_REQUESTS_PER_MINUTE`] requests in the last 60 seconds.
    pub fn admit_user(&self, user: UserId, now: Duration) -> Result<(), RateLimited> {
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        windows.sweep(now);
        windows.by_user.entry(user).or_default().admit(PANEL_REQUESTS_PER_MINUTE, now).map(drop)
    }

    /// Counts `more` requests in addition to the one just admitted, for a list of messages. If they exceed the limit,
    /// the admitted one does not count either.
    ///
    /// # Errors
    /// The errors of [`Self::admit`].
    pub fn admit_more(
        &self,
        account: AccountId,
        key: KeyId,
        limits: RequestLimits,
        more: u32,
        now: Duration,
    ) -> Result<RateView, RateLimited> {
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Windows { by_key, by_account, .. } = &mut *windows;
        let (of_key, of_account) = (by_key.entry(key).or_default(), by_account.entry(account).or_default());
        let by_account = of_account.admit_all(more, limits.account, now);
        let counted = by_account.is_ok();
        by_account.and_then(|_| of_key.admit_all(more, limits.key, now)).map_err(|refused| {
            of_account.take_back(if counted { more + 1 } else { 1 });
            of_key.take_back(1);
            RateLimited { view: of_key.view(limits.key, now), ..refused }
        })
    }

    /// Removes the requests of an account and of its keys.
    pub fn forget(&self, account: AccountId, keys: &[KeyId]) {
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        windows.by_account.remove(&account);
        keys.iter().for_each(|key| drop(windows.by_key.remove(key)));
    }

    /// Returns the current window of `key`.
    pub fn view(&self, key: KeyId, limit: u32, now: Duration) -> RateView {
        let windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        windows.by_key.get(&key).map_or_else(|| Rate::default().view(limit, now), |rate| rate.view(limit, now))
    }
}

/// Maximum number of requests in any 60 seconds.
#[derive(Clone, Copy, Debug)]
pub struct RequestLimits {
    /// Limit for one key.
    pub key: u32,
    /// Limit for all keys of an account.
    pub account: u32,
}

impl Engine {
    /// Counts one request of a caller's key, as the API does. The operator has no limit.
    ///
    /// # Errors
    /// Seconds to wait, if the limit is reached; the request does not count.
    pub(super) fn admit_request(&self, caller: &Caller) -> Result<(), u64> {
        let Some(key) = &caller.key else { return Ok(()) };
        let limits = RequestLimits::of(&self.settings);
        let admitted = self.rates.admit(caller.account, key.id, limits, self.clock.monotonic());
        admitted.map(drop).map_err(|limited| limited.retry_after_secs)
    }
}

impl RequestLimits {
    /// Returns the configured limits.
    pub const fn of(settings: &Settings) -> Self {
        Self { key: settings.requests_per_minute, account: settings.account_requests_per_minute }
    }
}

impl Windows {
    fn sweep(&mut self, now: Duration) {
        if self.until_sweep == 0 {
            self.by_key.retain(|_, rate| !rate.is_idle(now));
            self.by_account.retain(|_, rate| !rate.is_idle(now));
            self.by_user.retain(|_, rate| !rate.is_idle(now));
            self.until_sweep = SWEEP_EVERY;
        }
        self.until_sweep -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::Ulid;

    #[test]
    fn a_list_counts_for_both_key_and_account_or_for_neither() {
        let rates = Rates::default();
        let (account, key) = (AccountId(Ulid([1; 16])), KeyId(Ulid([1; 16])));
        let limits = RequestLimits { key: 10, account: 6 };
        let now = Duration::from_secs(1);
        let list = |more| {
            rates.admit(account, key, limits, now).and_then(|_| rates.admit_more(account, key, limits, more, now))
        };
        assert_eq!(list(3).unwrap().remaining, 6);
        let refused = list(2).unwrap_err();
        assert_eq!((refused.retry_after_secs, refused.view.remaining), (60, 6));
        assert_eq!(list(1).unwrap().remaining, 4);
        assert!(list(0).is_err());
    }

    #[test]
    fn the_keys_of_an_account_share_its_rate_but_not_other_accounts_rates() {
        let rates = Rates::default();
        let [account, other] = [1, 2].map(|byte| AccountId(Ulid([byte; 16])));
        let key = |byte| KeyId(Ulid([byte; 16]));
        let limits = RequestLimits { key: 2, account: 3 };
        let second = Duration::from_secs;
        for (at, byte) in [(0, 1), (1, 1), (2, 2)] {
            assert!(rates.admit(account, key(byte), limits, second(at)).is_ok());
        }
        let refused = rates.admit(account, key(3), limits, second(10)).unwrap_err();
        assert_eq!((refused.retry_after_secs, refused.view.remaining), (50, 2), "the key's own limit is not reached");
        assert!(rates.admit(other, key(9), limits, second(10)).is_ok());
        assert!(rates.admit(account, key(3), limits, second(60)).is_ok());
        let by_key = rates.admit(account, key(3), RequestLimits { key: 1, account: 9 }, second(60)).unwrap_err();
        assert_eq!(by_key.retry_after_secs, 60);
        assert!(rates.admit(account, key(4), limits, second(61)).is_ok(), "a refused request does not count");
    }
}
