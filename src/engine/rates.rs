//! The request rates of all keys, in memory: a restart starts empty (contract 3 "Request rate").

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::base::id::KeyId;
use crate::machine::rate::{Rate, RateLimited, RateView};

/// When to look for idle keys: every so many requests.
const SWEEP_EVERY: u32 = 4096;

/// One sliding window for each key in use.
#[derive(Default)]
pub struct Rates(Mutex<Windows>);

#[derive(Default)]
struct Windows {
    by_key: HashMap<KeyId, Rate>,
    until_sweep: u32,
}

impl Rates {
    /// Counts one request of `key` at monotonic time `now`.
    ///
    /// # Errors
    /// [`RateLimited`] where `limit` requests were admitted in the last 60 seconds.
    pub fn admit(&self, key: KeyId, limit: u32, now: Duration) -> Result<RateView, RateLimited> {
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        windows.sweep(now);
        windows.by_key.entry(key).or_default().admit(limit, now)
    }

    /// The window of `key` as it stands.
    pub fn view(&self, key: KeyId, limit: u32, now: Duration) -> RateView {
        let windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        windows.by_key.get(&key).map_or_else(|| Rate::default().view(limit, now), |rate| rate.view(limit, now))
    }
}

impl Windows {
    fn sweep(&mut self, now: Duration) {
        if self.until_sweep == 0 {
            self.by_key.retain(|_, rate| !rate.is_idle(now));
            self.until_sweep = SWEEP_EVERY;
        }
        self.until_sweep -= 1;
    }
}
