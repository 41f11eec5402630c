//! The network guard: the addresses that this service may connect to on behalf of its customers (contract 8, Network).
//!
//! Customers choose both recipient domains and webhook URLs. Without the guard they could reach hosts inside the
//! server's network. It is checked at every connection, for every resolved address and every literal one. It is never
//! checked for addresses of the operator's own configuration (DNS servers, smarthosts).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::domain::network::Network;

/// Permits global addresses and the networks that the operator allows.
#[derive(Debug, Clone, Default)]
pub struct Guard {
    allow: Vec<Network>,
    plain_http: bool,
}

impl Guard {
    /// Creates a guard that also permits the networks `allow`.
    pub const fn new(allow: Vec<Network>) -> Self {
        Self { allow, plain_http: false }
    }

    /// Returns the guard for webhooks under development: it also permits this machine, private networks and plain http.
    pub fn of_development() -> Self {
        const BESIDE: [&str; 6] =
            ["127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "::1/128", "fc00::/7"];
        Self { allow: BESIDE.iter().filter_map(|network| network.parse().ok()).collect(), plain_http: true }
    }

    /// Returns whether plain http is permitted.
    pub const fn permits_plain_http(&self) -> bool {
        self.plain_http
    }

    /// Returns whether connections to `address` are permitted.
    pub fn permits(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.allow.iter().any(|network| network.contains(address)) || is_global(address)
    }
}

/// Returns whether `address` is one host of the public internet. IPv4-mapped addresses must be in canonical form.
fn is_global(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_global_v4(v4),
        IpAddr::V6(v6) => is_global_v6(v6),
    }
}

/// Returns whether an IPv4 address is globally reachable by the IANA special-purpose registry. Multicast and 6to4
/// relays are not.
fn is_global_v4(address: Ipv4Addr) -> bool {
    const SPECIAL: &[([u8; 4], u8)] = &[
        ([0, 0, 0, 0], 8),       // "this network", RFC 791
        ([10, 0, 0, 0], 8),      // private, RFC 1918
        ([100, 64, 0, 0], 10),   // carrier-grade NAT, RFC 6598
        ([127, 0, 0, 0], 8),     // loopback, RFC 1122
        ([169, 254, 0, 0], 16),  // link-local and clouds' metadata, RFC 3927
        ([172, 16, 0, 0], 12),   // private, RFC 1918
        ([192, 0, 0, 0], 24),    // protocol assignments, RFC 6890
        ([192, 0, 2, 0], 24),    // TEST-NET-1, RFC 5737
        ([192, 88, 99, 0], 24),  // 6to4 relays, RFC 7526
        ([192, 168, 0, 0], 16),  // private, RFC 1918
        ([198, 18, 0, 0], 15),   // benchmarks, RFC 2544
        ([198, 51, 100, 0], 24), // TEST-NET-2
        ([203, 0, 113, 0], 24),  // TEST-NET-3
        ([224, 0, 0, 0], 4),     // multicast, RFC 5771
        ([240, 0, 0, 0], 4),     // reserved, broadcast among it, RFC 1112
    ];
    !SPECIAL.iter().any(|(first, prefix)| Network::around(IpAddr::from(*first), *prefix).contains(IpAddr::V4(address)))
}

/// Returns whether an IPv6 address is globally reachable. Only 2000::/3 is assigned for global unicast, which excludes
/// `::`, `::1`, IPv4-compatible ::/96, NAT64 64:ff9b::/96 and 64:ff9b:1::/48, 100::/64, SRv6 5f00::/16, fc00::/7,
/// fe80::/10 and ff00::/8. The table has the exceptions inside it.
fn is_global_v6(address: Ipv6Addr) -> bool {
    const GLOBAL_UNICAST: ([u16; 2], u8) = ([0x2000, 0], 3);
    const SPECIAL: &[([u16; 2], u8)] = &[
        ([0x2001, 0x0000], 23), // protocol assignments, RFC 2928: Teredo, benchmarks, ORCHID
        ([0x2001, 0x0db8], 32), // documentation, RFC 3849
        ([0x2002, 0x0000], 16), // 6to4, RFC 3056: carries any IPv4 address
        ([0x3fff, 0x0000], 20), // documentation, RFC 9637
    ];
    let within = |[a, b]: [u16; 2], prefix: u8| {
        let first = Ipv6Addr::new(a, b, 0, 0, 0, 0, 0, 0);
        Network::around(IpAddr::V6(first), prefix).contains(IpAddr::V6(address))
    };
    let (first, prefix) = GLOBAL_UNICAST;
    within(first, prefix) && !SPECIAL.iter().any(|(first, prefix)| within(*first, *prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permits(guard: &Guard, text: &str) -> bool {
        guard.permits(text.parse().unwrap())
    }

    #[test]
    fn a_non_global_address_is_refused() {
        let guard = Guard::default();
        for text in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::8.8.8.8",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:0:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:0:4136:e378::1",
            "2001:2::1",
            "2001:10::1",
            "2001:20::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "2002:808:808::1",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd12:3456::1",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "ff02::1",
            "4000::1",
        ] {
            assert!(!permits(&guard, text), "{text}");
        }
    }

    #[test]
    fn a_public_internet_address_is_permitted() {
        let guard = Guard::default();
        for text in [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.1",
            "169.253.255.255",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.1",
            "192.0.3.1",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "203.0.112.1",
            "223.255.255.255",
            "::ffff:8.8.8.8",
            "2001:200::1",
            "2001:4860:4860::8888",
            "2001:db9::1",
            "2003::1",
            "2606:4700::1111",
            "2a00:1450::1",
            "3ffe::1",
        ] {
            assert!(permits(&guard, text), "{text}");
        }
    }

    #[test]
    fn webhooks_under_development_reach_this_machine_and_private_networks() {
        let guard = Guard::of_development();
        for text in ["127.0.0.1", "::1", "10.1.2.3", "172.17.0.1", "192.168.65.2", "fd00::1", "8.8.8.8"] {
            assert!(permits(&guard, text), "{text}");
        }
        for text in ["169.254.169.254", "fe80::1", "0.0.0.0", "224.0.0.1", "100.64.0.1"] {
            assert!(!permits(&guard, text), "{text}");
        }
        assert!(guard.permits_plain_http() && !Guard::default().permits_plain_http());
    }

    #[test]
    fn only_the_allowed_networks_are_permitted_in_addition() {
        let guard = Guard::new(vec!["127.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()]);
        for text in ["127.0.0.1", "::ffff:127.9.9.9", "fd00::1"] {
            assert!(permits(&guard, text), "{text}");
        }
        for text in ["::1", "10.0.0.1", "fc00::1", "::127.0.0.1", "64:ff9b::127.0.0.1"] {
            assert!(!permits(&guard, text), "{text}");
        }
    }
}
