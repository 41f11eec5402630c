//! Connection limit per client address, so that one client can't use all connections.
//!
//! The listeners check it for each accepted connection. An IPv6 client has at least a /64 and may have a /48 (RFC
//! 6177), so its connections are counted by both.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use crate::domain::network::Network;

/// Connections of one IPv6 site (/48), as a multiple of those of one client.
const SITE_FACTOR: usize = 4;
const SITE_PREFIX: u8 = 48;

/// The connections of all listeners, counted by client address.
#[derive(Debug)]
pub(super) struct AddressCounts {
    most: usize,
    exempt: Vec<Network>,
    open: Mutex<HashMap<Network, usize>>,
}

/// A counted connection. Dropping it removes it from the count.
#[derive(Debug)]
pub(super) struct CountedAddress {
    counts: Arc<AddressCounts>,
    /// `None` if the connection is exempt.
    address: Option<IpAddr>,
}

impl AddressCounts {
    /// Allows `most` connections per client, and any number from the networks of `exempt`.
    pub(super) fn new(most: usize, exempt: Vec<Network>) -> Self {
        Self { most, exempt, open: Mutex::default() }
    }

    /// Counts a connection from `peer`; `None` if the limit is reached. A Unix socket has no peer and no limit.
    pub(super) fn enter(self: &Arc<Self>, peer: Option<SocketAddr>) -> Option<CountedAddress> {
        let address = peer.map(|peer| peer.ip().to_canonical()).filter(|address| !self.is_exempt(*address));
        if let Some(address) = address {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            let is_full = |(network, most): (Network, usize)| open.get(&network).is_some_and(|count| *count >= most);
            if self.counted(address).any(is_full) {
                return None;
            }
            for (network, _) in self.counted(address) {
                *open.entry(network).or_default() += 1;
            }
        }
        Some(CountedAddress { counts: Arc::clone(self), address })
    }

    /// Returns the networks by which a client is counted, with the limit of each.
    fn counted(&self, address: IpAddr) -> impl Iterator<Item = (Network, usize)> + use<> {
        let site = (Network::around(address, SITE_PREFIX), self.most.saturating_mul(SITE_FACTOR));
        let client = (Network::of_client(address), self.most);
        std::iter::once(client).chain(address.is_ipv6().then_some(site))
    }

    fn is_exempt(&self, address: IpAddr) -> bool {
        self.exempt.iter().any(|network| network.contains(address))
    }
}

impl Drop for CountedAddress {
    fn drop(&mut self) {
        let Some(address) = self.address else { return };
        let mut open = self.counts.open.lock().unwrap_or_else(PoisonError::into_inner);
        for (network, _) in self.counts.counted(address) {
            if let Some(count) = open.get_mut(&network) {
                *count -= 1;
                if *count == 0 {
                    open.remove(&network);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(address: &str) -> Option<SocketAddr> {
        Some(SocketAddr::new(address.parse().unwrap(), 1))
    }

    #[test]
    fn an_ipv4_address_and_an_ipv6_64_have_one_limit_each() {
        let counts = Arc::new(AddressCounts::new(2, Vec::new()));
        let first = counts.enter(peer("192.0.2.1")).unwrap();
        let _second = counts.enter(peer("::ffff:192.0.2.1")).unwrap();
        assert!(counts.enter(peer("192.0.2.1")).is_none());
        assert!(counts.enter(peer("192.0.2.2")).is_some());
        drop(first);
        let _third = counts.enter(peer("192.0.2.1")).unwrap();
        let _held = [counts.enter(peer("2001:db8::1")).unwrap(), counts.enter(peer("2001:db8::ffff:1")).unwrap()];
        assert!(counts.enter(peer("2001:db8::2")).is_none());
        assert!(counts.enter(peer("2001:db8:0:1::2")).is_some());
    }

    #[test]
    fn exempt_networks_have_no_limit_and_closed_connections_are_not_counted() {
        let counts = Arc::new(AddressCounts::new(1, vec!["10.0.0.0/8".parse().unwrap()]));
        let held: Vec<_> =
            (0..9).map(|_| [counts.enter(peer("10.1.2.3")).unwrap(), counts.enter(None).unwrap()]).collect();
        drop((held, counts.enter(peer("192.0.2.1")).unwrap()));
        assert!(counts.open.lock().unwrap().is_empty());
    }

    #[test]
    fn an_ipv6_48_has_four_times_the_limit_of_a_client() {
        let counts = Arc::new(AddressCounts::new(2, Vec::new()));
        let from = |client: u16, host: u16| counts.enter(peer(&format!("2001:db8:1:{client:x}::{host:x}")));
        let held: Vec<_> = (0..4).flat_map(|client| [from(client, 1), from(client, 2)]).map(Option::unwrap).collect();
        assert!(from(9, 1).is_none(), "all of the /48");
        assert!(counts.enter(peer("2001:db8:2::1")).is_some());
        drop(held);
        assert!(from(9, 1).is_some());
        assert!(counts.open.lock().unwrap().is_empty());
    }
}
