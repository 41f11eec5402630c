//! Throttles failed logins by the client's address: an IPv4 address or an IPv6 /64.
//!
//! The key is checked first, and a valid key is always accepted, so failures of others from the same address
//! don't lock out anyone.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use crate::domain::network::Network;
use crate::machine::throttle_table::{ThrottleKey, ThrottleTable};

/// Maximum number of stored addresses, some 10 MiB.
const REMEMBERED_MAX: usize = 32_768;

/// The failures.
pub(super) struct FailedLogins {
    table: Mutex<ThrottleTable>,
    limit: usize,
}

impl FailedLogins {
    /// Allows `limit` failures of one address in the throttle's window.
    pub(super) fn new(limit: usize) -> Self {
        Self { table: Mutex::new(ThrottleTable::new(REMEMBERED_MAX)), limit }
    }

    /// Counts a failed login at `now`. Returns whether the address had used up its failures before.
    pub(super) fn failed(&self, address: IpAddr, now: Duration) -> bool {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.attempt(key_of(address), self.limit, now).is_err()
    }
}

fn key_of(address: IpAddr) -> ThrottleKey {
    Sha256::digest(Network::of_client(address).to_string()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_throttled_until_its_failures_expire() {
        let failed = FailedLogins::new(2);
        let (one, same, other) = ("2001:db8::1", "2001:db8::2", "2001:db8:0:1::1");
        let at = |address: &str, second| failed.failed(address.parse().unwrap(), Duration::from_secs(second));
        assert!(!at(one, 0) && !at(same, 1) && at(one, 2) && !at(other, 2));
        assert!(!at(one, 900));
    }
}
