//! Connection limit of one or several listeners, in all and per address. Each [`Pass`] counts as one connection.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

/// The connection counts. Listeners with clones of one gate share them.
#[derive(Clone)]
pub struct ConnectionCap {
    counts: Arc<Mutex<Counts>>,
    max: usize,
    max_per_address: usize,
}

#[derive(Default)]
struct Counts {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// A permit for one connection, released when it is dropped.
pub(in crate::net) struct Pass {
    counts: Arc<Mutex<Counts>>,
    address: IpAddr,
}

impl ConnectionCap {
    /// Allows `max` connections, and `max_per_address` of one IPv4 address or one IPv6 /64.
    pub fn new(max: usize, max_per_address: usize) -> Self {
        Self { counts: Arc::default(), max, max_per_address }
    }

    /// Returns a permit for a connection from `address`, if the limits allow one more.
    pub(in crate::net) fn enter(&self, address: IpAddr) -> Option<Pass> {
        let address = network_of(address);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let of_address = counts.by_address.get(&address).copied().unwrap_or(0);
        if counts.all >= self.max || of_address >= self.max_per_address {
            return None;
        }
        counts.all += 1;
        counts.by_address.insert(address, of_address + 1);
        Some(Pass { counts: Arc::clone(&self.counts), address })
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.all = counts.all.saturating_sub(1);
        let is_last = counts.by_address.get_mut(&self.address).is_none_or(|count| {
            *count = count.saturating_sub(1);
            *count == 0
        });
        if is_last {
            counts.by_address.remove(&self.address);
        }
    }
}

/// Returns the network by which a client is counted. An IPv6 client has a whole /64, and would otherwise count as many.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_counted_in_total_and_by_network_and_released() {
        let gate = ConnectionCap::new(3, 2);
        let of = |text: &str| gate.enter(text.parse().unwrap());
        let first = of("2001:db8::1").unwrap();
        let _second = of("2001:db8::2").unwrap();
        assert!(of("2001:db8::3").is_none());
        let _third = of("::ffff:192.0.2.1").unwrap();
        assert!(of("192.0.2.2").is_none());
        drop(first);
        assert!(of("192.0.2.1").is_some());
        assert_eq!(gate.counts.lock().unwrap().by_address.len(), 2);
    }
}
