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
use crate::machine::throttle::Throttled;
use crate::machine::throttle_table::{ThrottleKey, ThrottleTable};

/// Maximum failures of one name, browser or session in the throttle's window.
const FAILURES_OF_NAME: usize = 10;
/// Maximum failures of one client in the throttle's window.
const FAILURES_OF_CLIENT: usize = 50;
/// Maximum failures of one IPv6 /48 in the throttle's window. One customer may have that many networks (RFC 6177).
const FAILURES_OF_SITE: usize = 4 * FAILURES_OF_CLIENT;
const SITE_PREFIX: u8 = 48;
/// Maximum counters for names, clients, browsers and sessions: some 10 MiB.
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

    /// Returns the counters of a client, by its address as text: those of its IPv4 address, or of the /64 and the /48
    /// of its IPv6 address.
    pub(super) fn clients(address: &str) -> Vec<Self> {
        let Ok(parsed) = address.parse::<IpAddr>() else {
            return vec![Self::new("client", address, FAILURES_OF_CLIENT)];
        };
        let client = Self::new("client", &Network::of_client(parsed).to_string(), FAILURES_OF_CLIENT);
        let site = Self::new("site", &site_of(parsed).to_string(), FAILURES_OF_SITE);
        if parsed.to_canonical().is_ipv4() { vec![client] } else { vec![client, site] }
    }

    /// Returns the counter of a name and those of a client.
    pub(super) fn stranger(name: &str, address: &str) -> Vec<Self> {
        std::iter::once(Self::name(name)).chain(Self::clients(address)).collect()
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

/// Returns the network of one customer: an IPv4 address, or an IPv6 /48.
pub(super) fn site_of(address: IpAddr) -> Network {
    let address = address.to_canonical();
    Network::around(address, if address.is_ipv4() { 32 } else { SITE_PREFIX })
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
    /// [`Throttled`] if one of them is full.
    pub(super) fn begin(&self, buckets: &[Bucket], now: Duration) -> Result<(), Throttled> {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (place, bucket) in buckets.iter().enumerate() {
            if let Err(throttled) = table.attempt(bucket.key, bucket.limit, now) {
                buckets[..place].iter().for_each(|begun| table.take_back(&begun.key, now));
                return Err(throttled);
            }
        }
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
        let key = |address| Bucket::clients(address)[0].key;
        assert_eq!(key("2001:db8::1"), key("2001:db8::ffff:2"));
        assert_ne!(key("2001:db8::1"), key("2001:db8:0:1::1"));
        assert_ne!(key("192.0.2.1"), key("192.0.2.2"));
        assert_eq!(key("::ffff:192.0.2.1"), key("192.0.2.1"));
    }

    #[test]
    fn the_networks_of_an_ipv6_site_share_a_limit_of_four_clients() {
        let throttles = Throttles::default();
        let try_from =
            |network: usize| throttles.begin(&Bucket::clients(&format!("2001:db8:1:{network:x}::1")), Duration::ZERO);
        assert!((0..FAILURES_OF_SITE).all(|network| try_from(network).is_ok()));
        assert!(try_from(0xffff).is_err());
        assert!(throttles.begin(&Bucket::clients("2001:db8:2::1"), Duration::ZERO).is_ok());
    }

    #[test]
    fn a_refused_attempt_is_not_counted() {
        let throttles = Throttles::default();
        let (ann, home) = (Bucket::name("ann"), Bucket::clients("192.0.2.1")[0]);
        for _ in 0..FAILURES_OF_CLIENT {
            throttles.begin(&[home], Duration::ZERO).unwrap();
        }
        for _ in 0..FAILURES_OF_NAME {
            assert!(throttles.begin(&[ann, home], Duration::ZERO).is_err());
        }
        assert!(throttles.begin(&Bucket::stranger("ann", "192.0.2.2"), Duration::ZERO).is_ok());
    }
}
