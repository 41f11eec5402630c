//! Source addresses that the system would use. For `init` and `doctor`.

use std::net::{IpAddr, SocketAddr, UdpSocket};

/// Returns the source address for traffic to `to`; `None` if there is no route. Nothing is sent: connecting a UDP
/// socket only consults the routing table.
pub fn source_towards(to: SocketAddr) -> Option<IpAddr> {
    let any: SocketAddr = if to.is_ipv4() { ([0; 4], 0).into() } else { ([0; 16], 0).into() };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(to).ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

/// Returns the source addresses for the internet: at most one per family.
pub fn sources() -> Vec<IpAddr> {
    // Documentation addresses: they are routed like any other, and belong to no host.
    let internet: [SocketAddr; 2] =
        [([192, 0, 2, 1], 25).into(), (IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1u16]), 25).into()];
    internet.into_iter().filter_map(source_towards).filter(|address| !address.is_unspecified()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_reached_from_loopback() {
        assert_eq!(source_towards(([127, 0, 0, 1], 25).into()), Some(IpAddr::from([127, 0, 0, 1])));
        assert!(sources().iter().all(|address| !address.is_unspecified()));
    }
}
