//! Counters of sign-in attempts, grouped by name, client, browser and session. In memory only: a restart starts empty.
//!
//! Attempts of strangers are counted by name and by client. A browser that the user has signed in with before has its
//! own counter, and so has a session. So strangers who use the same name can't lock them out.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use crate::domain::device::DeviceKey;
use crate::domain::network::Network;
use crate::domain::session::SessionKey;
use crate::machine::throttle::TooManyFailures;
use crate::machine::throttle_table::{ThrottleKey, ThrottleTable};

/// Maximum number of failures of one name, browser or session in the throttle's window.
const FAILURES_OF_NAME: usize = 10;
/// Maximum number of failures of one client in the throttle's window.
const FAILURES_OF_CLIENT: usize = 50;
/// Maximum number of counters for names, clients, browsers and sessions: some 10 MiB.
const REMEMBERED_MAX: usize = 32_768;

/// Key of a counter.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bucket {
    key: ThrottleKey,
    limit: usize,
}

impl Bucket {
    fn new(kind: &str, text: &str, limit: usize) -> Self {
        Self { key: Sha256::digest(format!("{kind} {text}")).into(), limit }
    }

    /// Returns the counter of a given name, or of the user of a code.
    pub(super) fn name(name: &str) -> Self {
        Self::new("name", name, FAILURES_OF_NAME)
    }

    /// Returns the counter of a client, by its address as text: an IPv4 address or the /64 of an IPv6 address.
    pub(super) fn client(address: &str) -> Self {
        let network = address.parse::<IpAddr>().map(Network::of_client);
        let client = network.map_or_else(|_| address.to_owned(), |network| network.to_string());
        Self::new("client", &client, FAILURES_OF_CLIENT)
    }

    /// Returns the counters of a name and of a client.
    pub(super) fn stranger(name: &str, address: &str) -> Vec<Self> {
        vec![Self::name(name), Self::client(address)]
    }

    /// Returns the counter of a browser that the user has signed in with before.
    pub(super) fn browser(key: &DeviceKey) -> Self {
        Self::new("browser", &hex::encode(key), FAILURES_OF_NAME)
    }

    /// Returns the counter of a signed-in session.
    pub(super) fn session(key: &SessionKey) -> Self {
        Self::new("session", &hex::encode(key), FAILURES_OF_NAME)
    }
}

/// The counters.
pub(super) struct Throttles(Mutex<ThrottleTable>);

impl Default for Throttles {
    fn default() -> Self {
        Self(Mutex::new(ThrottleTable::new(REMEMBERED_MAX)))
    }
}

impl Throttles {
    /// Starts an attempt. It counts in all of `buckets`, or in none if it is refused.
    ///
    /// # Errors
    /// [`TooManyFailures`] if one of them is full.
    pub(super) fn begin(&self, buckets: &[Bucket], now: Duration) -> Result<(), TooManyFailures> {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (place, bucket) in buckets.iter().enumerate() {
            if let Err(throttled) = table.attempt(bucket.key, bucket.limit, now) {
                buckets[..place].iter().for_each(|begun| table.take_back(&begun.key, now));
                return Err(throttled);
            }
        }
        Ok(())
    }

    /// Checks whether an attempt may start, without counting one.
    ///
    /// # Errors
    /// [`TooManyFailures`] if one of `buckets` is full.
    pub(super) fn check(&self, buckets: &[Bucket], now: Duration) -> Result<(), TooManyFailures> {
        self.begin(buckets, now)?;
        self.take_back(buckets, now);
        Ok(())
    }

    /// Removes the attempt that started at `begun` from the counters.
    pub(super) fn take_back(&self, buckets: &[Bucket], begun: Duration) {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        buckets.iter().for_each(|bucket| table.take_back(&bucket.key, begun));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_client_is_counted_by_its_64_bit_prefix() {
        let key = |address| Bucket::client(address).key;
        assert_eq!(key("2001:db8::1"), key("2001:db8::ffff:2"));
        assert_ne!(key("2001:db8::1"), key("2001:db8:0:1::1"));
        assert_ne!(key("192.0.2.1"), key("192.0.2.2"));
        assert_eq!(key("::ffff:192.0.2.1"), key("192.0.2.1"));
    }

    #[test]
    fn a_refused_attempt_is_not_counted() {
        let throttles = Throttles::default();
        let (ann, home) = (Bucket::name("ann"), Bucket::client("192.0.2.1"));
        for _ in 0..FAILURES_OF_CLIENT {
            throttles.begin(&[home], Duration::ZERO).unwrap();
        }
        for _ in 0..FAILURES_OF_NAME {
            assert!(throttles.begin(&[ann, home], Duration::ZERO).is_err());
        }
        assert!(throttles.begin(&Bucket::stranger("ann", "192.0.2.2"), Duration::ZERO).is_ok());
    }
}
