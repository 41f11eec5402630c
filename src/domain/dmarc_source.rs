//! A source of a domain's mail in DMARC reports: its network, its kind and its messages.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::dmarc_record::DmarcPolicy;

/// The network under which a source is counted: the /24 of an IPv4 address, or the /48 of an IPv6 address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub enum SourceNetwork {
    /// An IPv4 /24.
    V4([u8; 3]),
    /// An IPv6 /48.
    V6([u8; 6]),
    /// All networks without counts of their own on that day.
    #[default]
    Other,
}

impl SourceNetwork {
    /// Returns the network of an address. An IPv4-mapped IPv6 address counts as its IPv4 address.
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(v4) => Self::V4([v4.octets()[0], v4.octets()[1], v4.octets()[2]]),
            IpAddr::V6(v6) => {
                let [a, b, c, d, e, f, ..] = v6.octets();
                Self::V6([a, b, c, d, e, f])
            }
        }
    }

    /// Returns a number that no other network has, in the order of networks.
    pub fn number(self) -> u64 {
        match self {
            Self::V4([a, b, c]) => u64::from_be_bytes([0, 0, 0, 0, 0, a, b, c]),
            Self::V6([a, b, c, d, e, f]) => u64::from_be_bytes([0, 1, a, b, c, d, e, f]),
            Self::Other => u64::MAX,
        }
    }

    /// Returns the network's bytes in keys.
    pub fn to_bytes(self) -> Vec<u8> {
        match self {
            Self::V4(bytes) => [&[4], &bytes[..]].concat(),
            Self::V6(bytes) => [&[6], &bytes[..]].concat(),
            Self::Other => vec![0],
        }
    }

    /// Returns the network at the beginning of these bytes, and the bytes after it.
    pub fn from_bytes(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (&family, rest) = bytes.split_first()?;
        match family {
            4 => rest.split_first_chunk().map(|(network, rest)| (Self::V4(*network), rest)),
            6 => rest.split_first_chunk().map(|(network, rest)| (Self::V6(*network), rest)),
            0 => Some((Self::Other, rest)),
            _ => None,
        }
    }
}

impl fmt::Display for SourceNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::V4([a, b, c]) => write!(f, "{}/24", Ipv4Addr::new(a, b, c, 0)),
            Self::V6(bytes) => {
                let mut address = [0; 16];
                address[..6].copy_from_slice(&bytes);
                write!(f, "{}/48", Ipv6Addr::from(address))
            }
            Self::Other => f.write_str("other"),
        }
    }
}

/// Error: the text is not a network in the form of these counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be a network of the report, such as 192.0.2.0/24, 2001:db8:1::/48 or other")]
pub struct InvalidSourceNetwork;

impl FromStr for SourceNetwork {
    type Err = InvalidSourceNetwork;

    fn from_str(text: &str) -> Result<Self, InvalidSourceNetwork> {
        if text == "other" {
            return Ok(Self::Other);
        }
        let (address, prefix) = text.split_once('/').ok_or(InvalidSourceNetwork)?;
        let address: IpAddr = address.parse().map_err(|_| InvalidSourceNetwork)?;
        let network = Self::of(address);
        let first: Option<IpAddr> = network.to_string().split('/').next().and_then(|first| first.parse().ok());
        let wanted = if matches!(network, Self::V4(_)) { "24" } else { "48" };
        // A host inside the network, or another prefix length, may mean something else.
        if first == Some(address) && prefix == wanted { Ok(network) } else { Err(InvalidSourceNetwork) }
    }
}

/// Category of a source.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SourceKind {
    /// This service: the source address of a relay, or an address of its EHLO name.
    Own,
    /// A server that forwarded mail signed by this service.
    Forwarder,
    /// Another service, some of whose mail passed.
    Authorised,
    /// Any other: a service without SPF and DKIM, or a sender who forges the domain.
    Unknown,
}

impl SourceKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Own, Self::Forwarder, Self::Authorised, Self::Unknown];

    /// Returns the name on every interface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Forwarder => "forwarder",
            Self::Authorised => "authorised",
            Self::Unknown => "unknown",
        }
    }
}

/// A receiver's evaluation of messages: the applied policy, and the checks that passed and aligned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Evaluation {
    /// The applied policy; `None` for messages that passed.
    pub disposition: DmarcPolicy,
    /// Whether DKIM passed, aligned with the From domain.
    pub dkim: bool,
    /// Whether SPF passed, aligned with the From domain.
    pub spf: bool,
}

impl Evaluation {
    /// Number of different evaluations.
    pub const COUNT: usize = 12;

    /// Returns the index among all evaluations.
    const fn place(self) -> usize {
        (self.disposition as usize) * 4 + (self.dkim as usize) * 2 + self.spf as usize
    }
}

/// Message counts by evaluation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DmarcCounts([u64; Evaluation::COUNT]);

impl DmarcCounts {
    /// No messages.
    pub const ZERO: Self = Self([0; Evaluation::COUNT]);

    /// Counts messages.
    pub const fn add(&mut self, evaluation: Evaluation, messages: u64) {
        let counted = &mut self.0[evaluation.place()];
        *counted = counted.saturating_add(messages);
    }

    /// Adds other counts.
    pub fn merge(&mut self, more: &Self) {
        for (counted, more) in self.0.iter_mut().zip(more.0) {
            *counted = counted.saturating_add(more);
        }
    }

    fn sum(&self, is_counted: impl Fn(DmarcPolicy, bool, bool) -> bool) -> u64 {
        let counted = self.0.iter().enumerate().filter(|(place, _)| {
            let disposition = DmarcPolicy::ALL[place / 4];
            is_counted(disposition, place & 2 != 0, place & 1 != 0)
        });
        counted.fold(0, |sum: u64, (_, messages)| sum.saturating_add(*messages))
    }

    /// Returns the number of all messages.
    pub fn messages(&self) -> u64 {
        self.sum(|_, _, _| true)
    }

    /// Returns the number of messages for which DKIM or SPF passed and aligned.
    pub fn passed(&self) -> u64 {
        self.sum(|_, dkim, spf| dkim || spf)
    }

    /// Returns the number of messages for which DKIM and SPF failed.
    pub fn failed(&self) -> u64 {
        self.sum(|_, dkim, spf| !dkim && !spf)
    }

    /// Returns the number of messages for which DKIM passed and aligned.
    pub fn dkim_aligned(&self) -> u64 {
        self.sum(|_, dkim, _| dkim)
    }

    /// Returns the number of messages for which SPF passed and aligned.
    pub fn spf_aligned(&self) -> u64 {
        self.sum(|_, _, spf| spf)
    }

    /// Returns the number of messages to which this policy was applied.
    pub fn disposed(&self, policy: DmarcPolicy) -> u64 {
        self.sum(|disposition, _, _| disposition == policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_order_of_the_networks() {
        use SourceNetwork::{Other, V4, V6};
        let networks = [
            V4([0; 3]),
            V4([0, 0, 1]),
            V4([1, 0, 0]),
            V4([255; 3]),
            V6([0; 6]),
            V6([0, 0, 0, 0, 0, 1]),
            V6([255; 6]),
            Other,
        ];
        assert!(networks.is_sorted_by(|one, next| one < next && one.number() < next.number()));
    }

    #[test]
    fn a_network_has_one_text_form_and_one_key() {
        for (address, text) in [
            ("192.0.2.77", "192.0.2.0/24"),
            ("::ffff:192.0.2.77", "192.0.2.0/24"),
            ("2001:db8:1:2::3", "2001:db8:1::/48"),
        ] {
            let network = SourceNetwork::of(address.parse().unwrap());
            assert_eq!((network.to_string(), text.parse()), (text.to_owned(), Ok(network)));
            let key = [network.to_bytes(), b"rest".to_vec()].concat();
            assert_eq!(SourceNetwork::from_bytes(&key), Some((network, b"rest".as_slice())));
        }
        assert_eq!("other".parse(), Ok(SourceNetwork::Other));
        assert_eq!(SourceNetwork::from_bytes(&SourceNetwork::Other.to_bytes()), Some((SourceNetwork::Other, &[][..])));
        for invalid in ["", "192.0.2.0", "192.0.2.1/24", "192.0.2.0/25", "2001:db8:1:1::/48", "x/24", "Other"] {
            assert_eq!(invalid.parse::<SourceNetwork>(), Err(InvalidSourceNetwork), "{invalid}");
        }
        assert_eq!(SourceNetwork::from_bytes(&[5, 1, 2, 3]), None);
    }

    #[test]
    fn messages_are_counted_by_evaluation() {
        let mut counts = DmarcCounts::default();
        let evaluation = |disposition, dkim, spf| Evaluation { disposition, dkim, spf };
        counts.add(evaluation(DmarcPolicy::None, true, true), 100);
        counts.add(evaluation(DmarcPolicy::None, false, true), 20);
        counts.add(evaluation(DmarcPolicy::Quarantine, false, false), 3);
        counts.add(evaluation(DmarcPolicy::Reject, false, false), 4);
        let mut twice = counts;
        twice.merge(&counts);
        assert_eq!((counts.messages(), twice.messages()), (127, 254));
        assert_eq!((counts.passed(), counts.failed()), (120, 7));
        assert_eq!((counts.dkim_aligned(), counts.spf_aligned()), (100, 120));
        assert_eq!((counts.disposed(DmarcPolicy::Quarantine), counts.disposed(DmarcPolicy::Reject)), (3, 4));
        counts.add(evaluation(DmarcPolicy::None, true, true), u64::MAX);
        assert_eq!(counts.messages(), u64::MAX, "sums saturate");
    }
}
