//! How many connections each client address holds, so that one client can't take the room of all.
//!
//! Asked by the listeners for each connection that they accept. An IPv6 client has a /64 at the least, so that counts
//! as one address.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use crate::domain::network::Network;

/// The connections of all listeners, counted by client address.
#[derive(Debug)]
pub(super) struct Crowd {
    most: usize,
    exempt: Vec<Network>,
    open: Mutex<HashMap<Network, usize>>,
}

/// A connection's place, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Presence {
    crowd: Arc<Crowd>,
    /// None where the connection does not count.
    origin: Option<Network>,
}

impl Crowd {
    /// At most `most` connections an address, and any number from the networks of `exempt`.
    pub(super) fn new(most: usize, exempt: Vec<Network>) -> Self {
        Self { most, exempt, open: Mutex::default() }
    }

    /// Counts a connection from `peer`; none where it is one too many. A Unix socket has no peer and no limit.
    pub(super) fn enter(self: &Arc<Self>, peer: Option<SocketAddr>) -> Option<Presence> {
        let origin = peer.map(|peer| peer.ip().to_canonical()).filter(|address| !self.is_exempt(*address)).map(origin);
        if let Some(origin) = origin {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            let count = open.entry(origin).or_default();
            if *count >= self.most {
                return None;
            }
            *count += 1;
        }
        Some(Presence { crowd: Arc::clone(self), origin })
    }

    fn is_exempt(&self, address: IpAddr) -> bool {
        self.exempt.iter().any(|network| network.contains(address))
    }
}

fn origin(address: IpAddr) -> Network {
    Network::around(address, if address.is_ipv4() { 32 } else { 64 })
}

impl Drop for Presence {
    fn drop(&mut self) {
        let Some(origin) = self.origin else { return };
        let mut open = self.crowd.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&origin) {
            *count -= 1;
            if *count == 0 {
                open.remove(&origin);
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
    fn an_address_has_its_share_and_an_ipv6_address_that_of_its_64() {
        let crowd = Arc::new(Crowd::new(2, Vec::new()));
        let first = crowd.enter(peer("192.0.2.1")).unwrap();
        let _second = crowd.enter(peer("::ffff:192.0.2.1")).unwrap();
        assert!(crowd.enter(peer("192.0.2.1")).is_none());
        assert!(crowd.enter(peer("192.0.2.2")).is_some());
        drop(first);
        let _third = crowd.enter(peer("192.0.2.1")).unwrap();
        let _held = [crowd.enter(peer("2001:db8::1")).unwrap(), crowd.enter(peer("2001:db8::ffff:1")).unwrap()];
        assert!(crowd.enter(peer("2001:db8::2")).is_none());
        assert!(crowd.enter(peer("2001:db8:0:1::2")).is_some());
    }

    #[test]
    fn the_exempt_have_no_limit_and_who_has_gone_is_forgotten() {
        let crowd = Arc::new(Crowd::new(1, vec!["10.0.0.0/8".parse().unwrap()]));
        let held: Vec<_> =
            (0..9).map(|_| [crowd.enter(peer("10.1.2.3")).unwrap(), crowd.enter(None).unwrap()]).collect();
        drop((held, crowd.enter(peer("192.0.2.1")).unwrap()));
        assert!(crowd.open.lock().unwrap().is_empty());
    }
}
