//! Which of this machine's addresses the system would send from. Asked by `init` and `doctor`.

use std::net::{IpAddr, SocketAddr, UdpSocket};

/// The address that the system sends from to `to`; none where there is no way there. Nothing is sent: connecting a UDP
/// socket only asks the routing table.
pub fn source_towards(to: SocketAddr) -> Option<IpAddr> {
    let any: SocketAddr = if to.is_ipv4() { ([0; 4], 0).into() } else { ([0; 16], 0).into() };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(to).ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

/// The addresses that the system sends from to the internet: at most one of each family.
pub fn sources() -> Vec<IpAddr> {
    // Documentation addresses: they are routed as any other, and belong to nobody.
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
