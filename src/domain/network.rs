//! A network in CIDR form, as written in the configuration (`network.allow`, `http.trusted_proxies`).
//!
//! This module has only the text form and the membership of addresses. Floor `net` decides which networks may be
//! reached.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A network: its first address and the length of its prefix. An IPv4-mapped IPv6 network is stored as IPv4, so that
/// one address has only one form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Network {
    first: IpAddr,
    prefix: u8,
}

/// Error: the text is not a network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidNetwork {
    /// The part before the slash is not an address.
    #[error("`{0}` is not an IP address; write a network such as 10.0.0.0/8 or fd00::/8")]
    Address(String),
    /// The part after the slash is not a prefix length.
    #[error("`{text}` is not a prefix length; write a number from 0 to {max}")]
    Prefix {
        /// Text after the slash.
        text: String,
        /// Maximum prefix length of the family.
        max: u8,
    },
    /// Bits are set after the prefix, so it is unclear whether the host or its whole network is meant.
    #[error("`{given}` has bits set beyond its prefix; write {network} for the network or {host} for the host")]
    HostBits {
        /// The text as given.
        given: String,
        /// The network around the address.
        network: Network,
        /// The single address.
        host: IpAddr,
    },
}

impl Network {
    /// Returns the network under which a client is counted: its IPv4 address, or the /64 of its IPv6 address, the
    /// smallest network that an IPv6 client gets (RFC 6177).
    pub fn of_client(address: IpAddr) -> Self {
        let address = address.to_canonical();
        Self::around(address, if address.is_ipv4() { 32 } else { 64 })
    }

    /// Returns the network of one customer: an IPv4 address, or the /48 of an IPv6 address (RFC 6177).
    pub fn of_site(address: IpAddr) -> Self {
        let address = address.to_canonical();
        Self::around(address, if address.is_ipv4() { 32 } else { 48 })
    }

    /// Returns the network of `prefix` bits around `address`; a longer prefix than the address means only the address.
    pub fn around(address: IpAddr, prefix: u8) -> Self {
        match address {
            IpAddr::V4(v4) => {
                let prefix = prefix.min(32);
                let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
                Self { first: IpAddr::V4((u32::from(v4) & mask).into()), prefix }
            }
            IpAddr::V6(v6) => {
                let prefix = prefix.min(128);
                let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
                let first = Ipv6Addr::from(u128::from(v6) & mask);
                match first.to_ipv4_mapped() {
                    Some(v4) if prefix >= 96 => Self { first: IpAddr::V4(v4), prefix: prefix - 96 },
                    Some(_) | None => Self { first: IpAddr::V6(first), prefix },
                }
            }
        }
    }

    /// Returns whether `address` is in the network. An IPv4-mapped address counts as its IPv4 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.first.is_ipv4() && Self::around(address, self.prefix) == *self
    }
}

impl FromStr for Network {
    type Err = InvalidNetwork;
    fn from_str(text: &str) -> Result<Self, InvalidNetwork> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let host: IpAddr = address.parse().map_err(|_| InvalidNetwork::Address(address.to_owned()))?;
        let max = if host.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => max,
            Some(digits) => decimal(digits)
                .filter(|bits| *bits <= max)
                .ok_or_else(|| InvalidNetwork::Prefix { text: digits.to_owned(), max })?,
        };
        let network = Self::around(host, prefix);
        if network.first != host.to_canonical() {
            return Err(InvalidNetwork::HostBits { given: text.to_owned(), network, host });
        }
        Ok(network)
    }
}

/// Parses digits only: the standard parser would also accept a `+`.
fn decimal(digits: &str) -> Option<u8> {
    if digits.bytes().all(|b| b.is_ascii_digit()) { digits.parse().ok() } else { None }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.prefix)
    }
}

impl TryFrom<String> for Network {
    type Error = InvalidNetwork;
    fn try_from(text: String) -> Result<Self, InvalidNetwork> {
        text.parse()
    }
}

impl From<Network> for String {
    fn from(network: Network) -> Self {
        network.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        text.parse().unwrap()
    }

    fn fault(text: &str) -> String {
        text.parse::<Network>().unwrap_err().to_string()
    }

    #[test]
    fn a_network_contains_exactly_its_addresses() {
        for (net, inside, outside) in [
            ("127.0.0.0/8", "127.255.255.255", "128.0.0.0"),
            ("10.1.2.3", "10.1.2.3", "10.1.2.4"),
            ("0.0.0.0/0", "203.0.113.9", "::1"),
            ("::/0", "2001:db8::1", "203.0.113.9"),
            ("fd00::/8", "fdff::1", "fc00::1"),
            ("192.0.2.128/25", "192.0.2.128", "192.0.2.127"),
        ] {
            assert!(network(net).contains(inside.parse().unwrap()), "{inside} in {net}");
            assert!(!network(net).contains(outside.parse().unwrap()), "{outside} not in {net}");
        }
    }

    #[test]
    fn a_mapped_address_equals_its_ipv4_address() {
        assert!(network("127.0.0.0/8").contains("::ffff:127.0.0.1".parse().unwrap()));
        assert_eq!(network("::ffff:127.0.0.0/104"), network("127.0.0.0/8"));
    }

    #[test]
    fn an_error_suggests_the_correct_form() {
        assert_eq!(
            fault("10.1.2.3/8"),
            "`10.1.2.3/8` has bits set beyond its prefix; write 10.0.0.0/8 for the network or 10.1.2.3 for the host"
        );
        assert_eq!(fault("10.0.0.0/33"), "`33` is not a prefix length; write a number from 0 to 32");
        assert_eq!(fault("fd00::/129"), "`129` is not a prefix length; write a number from 0 to 128");
        assert!(fault("10.0.0.0/+8").contains("prefix length"));
        assert!(fault("10.0.0.0/").contains("prefix length"));
        assert!(fault("loopback").contains("not an IP address"));
    }

    #[test]
    fn a_network_is_displayed_as_parsed() {
        for text in ["127.0.0.0/8", "fd00::/8", "203.0.113.7/32", "0.0.0.0/0"] {
            assert_eq!(network(text).to_string(), text);
        }
    }
}
