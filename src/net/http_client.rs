//! The client of a request: the peer of the connection, or the client named in `X-Forwarded-For` by a trusted proxy.
//!
//! The `http` floor asks for each request. The header is ignored if it comes from any other peer.

use std::net::{IpAddr, SocketAddr};

use hyper::header::{HeaderMap, HeaderName};

use crate::domain::network::Network;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The client of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client {
    /// The client's address; absent on a Unix socket.
    pub address: Option<IpAddr>,
    /// Whether the request came through a proxy.
    pub is_forwarded: bool,
}

impl Client {
    /// Returns the client of a request with `headers` from `peer`. Behind one of `proxies`, it is the rightmost address
    /// that is not a trusted proxy: each trusted proxy has appended the address that it saw. If that can't be parsed,
    /// or all addresses are trusted proxies, it is the last address parsed, still marked as forwarded.
    pub(super) fn of(peer: Option<SocketAddr>, headers: &HeaderMap, proxies: &[Network]) -> Self {
        let address = peer.map(|peer| peer.ip().to_canonical());
        let is_ours = |address: IpAddr| proxies.iter().any(|network| network.contains(address));
        let Some(mut client) = address.filter(|address| is_ours(*address) && headers.contains_key(FORWARDED_FOR))
        else {
            return Self { address, is_forwarded: false };
        };
        let lines: Vec<_> = headers.get_all(FORWARDED_FOR).iter().collect();
        let hops = lines.iter().rev().flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b','));
        for hop in hops.map_while(|hop| read(hop.trim_ascii())) {
            client = hop;
            if !is_ours(hop) {
                break;
            }
        }
        Self { address: Some(client), is_forwarded: true }
    }

    /// Returns whether the client is on this machine, without a proxy in between.
    pub fn is_loopback(&self) -> bool {
        !self.is_forwarded && self.address.is_none_or(|address| address.is_loopback())
    }
}

/// Parses an address, with or without a port or the brackets of IPv6.
fn read(hop: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(hop).ok()?;
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse::<IpAddr>().or_else(|_| text.parse::<SocketAddr>().map(|with_port| with_port.ip()));
    address.ok().map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    fn client(peer: &str, lines: &[&'static str]) -> (String, bool) {
        let mut map = HeaderMap::new();
        for line in lines {
            map.append(FORWARDED_FOR, HeaderValue::from_static(line));
        }
        let proxies = ["127.0.0.1".parse().unwrap(), "10.0.0.0/8".parse().unwrap()];
        let client = Client::of(Some(SocketAddr::new(peer.parse().unwrap(), 1)), &map, &proxies);
        (client.address.unwrap().to_string(), client.is_forwarded)
    }

    fn forwarded(address: &str) -> (String, bool) {
        (address.to_owned(), true)
    }

    #[test]
    fn behind_a_trusted_proxy_the_client_is_the_rightmost_untrusted_address() {
        assert_eq!(client("127.0.0.1", &["203.0.113.9"]), forwarded("203.0.113.9"));
        assert_eq!(client("::ffff:127.0.0.1", &["198.51.100.7, 203.0.113.9 ,10.1.1.1"]), forwarded("203.0.113.9"));
        assert_eq!(
            client("10.9.9.9", &["198.51.100.7", "203.0.113.9, 10.1.1.1", "10.2.2.2"]),
            forwarded("203.0.113.9")
        );
        for hop in ["2001:db8::9", "[2001:db8::9]", "[2001:db8::9]:1234"] {
            assert_eq!(client("127.0.0.1", &[hop]), forwarded("2001:db8::9"));
        }
        assert_eq!(client("127.0.0.1", &["203.0.113.9:1234"]), forwarded("203.0.113.9"));
    }

    #[test]
    fn an_unparsable_address_yields_the_last_proxy_marked_as_forwarded() {
        assert_eq!(client("127.0.0.1", &["203.0.113.9, unknown"]), forwarded("127.0.0.1"));
        assert_eq!(client("127.0.0.1", &["203.0.113.9, , 10.1.1.1"]), forwarded("10.1.1.1"));
        assert_eq!(client("127.0.0.1", &["10.3.3.3, 10.1.1.1"]), forwarded("10.3.3.3"));
        assert_eq!(client("127.0.0.1", &[""]), forwarded("127.0.0.1"));
    }

    #[test]
    fn other_peers_are_not_trusted_and_only_direct_local_connections_are_loopback() {
        assert_eq!(client("192.0.2.1", &["203.0.113.9"]), ("192.0.2.1".to_owned(), false));
        assert_eq!(client("127.0.0.1", &[]), ("127.0.0.1".to_owned(), false));
        let loopback = "127.0.0.1".parse().ok();
        assert!(Client { address: loopback, is_forwarded: false }.is_loopback());
        assert!(Client { address: None, is_forwarded: false }.is_loopback());
        assert!(!Client { address: loopback, is_forwarded: true }.is_loopback());
        assert!(!Client { address: "192.0.2.1".parse().ok(), is_forwarded: false }.is_loopback());
    }
}
