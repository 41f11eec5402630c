//! Checks of this machine's network and DNS, over [`Probe`]: outgoing mail, reverse names of addresses, and block
//! lists. Alerts and `postrider doctor` share them.

pub mod block_list;
pub mod port25;
pub mod reverse;

use std::net::IpAddr;

use super::ports::probe::{Probe, ProbeFailure, RecordType};

/// Returns the addresses of a name, IPv4 first. A failed lookup of one family is an error only if the other has no
/// addresses.
///
/// # Errors
/// [`ProbeFailure`].
pub async fn addresses(probe: &dyn Probe, name: &str) -> Result<Vec<IpAddr>, ProbeFailure> {
    let (v4, v6) = tokio::join!(probe.records(name, RecordType::A), probe.records(name, RecordType::Aaaa));
    let of = |found: &Result<Vec<String>, ProbeFailure>| -> Vec<IpAddr> {
        found.iter().flatten().filter_map(|text| text.parse().ok()).collect()
    };
    let addresses = [of(&v4), of(&v6)].concat();
    match (addresses.is_empty(), v4, v6) {
        (false, _, _) => Ok(addresses),
        (true, Err(unknown @ ProbeFailure::Unknown(_)), _) | (true, _, Err(unknown @ ProbeFailure::Unknown(_))) => {
            Err(unknown)
        }
        (true, _, _) => Err(ProbeFailure::Absent),
    }
}

/// Returns the name under which `address` is looked up in `zone`. It has the parts of the address in reverse (RFC 1035
/// 3.5, RFC 3596 2.5, RFC 5782 2.1 and 2.4).
pub fn reversed_in(address: IpAddr, zone: &str) -> String {
    let mut name = String::new();
    match address {
        IpAddr::V4(v4) => v4.octets().iter().rev().for_each(|byte| name.push_str(&format!("{byte}."))),
        IpAddr::V6(v6) => {
            let nibbles = v6.octets().into_iter().rev().flat_map(|byte| [byte & 15, byte >> 4]);
            nibbles.for_each(|nibble| name.push_str(&format!("{nibble:x}.")));
        }
    }
    name + zone
}

/// Returns the name of an address's PTR record.
pub fn reverse_name(address: IpAddr) -> String {
    let address = address.to_canonical();
    reversed_in(address, if address.is_ipv4() { "in-addr.arpa" } else { "ip6.arpa" })
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::HashMap;
    use std::net::SocketAddr;

    use super::*;
    use crate::engine::ports::BoxFuture;

    /// Scripted DNS names and mail servers.
    #[derive(Default)]
    pub(crate) struct World {
        pub(crate) records: HashMap<(String, &'static str), Vec<String>>,
        pub(crate) unknown: Vec<String>,
        pub(crate) greetings: HashMap<IpAddr, String>,
        pub(crate) sources: Vec<IpAddr>,
    }

    impl World {
        pub(crate) fn with(mut self, name: &str, record_type: RecordType, values: &[&str]) -> Self {
            let values = values.iter().map(|value| (*value).to_owned()).collect();
            self.records.insert((name.to_owned(), key(record_type)), values);
            self
        }
    }

    const fn key(record_type: RecordType) -> &'static str {
        match record_type {
            RecordType::A => "A",
            RecordType::Aaaa => "AAAA",
            RecordType::Ptr => "PTR",
            RecordType::Mx => "MX",
        }
    }

    impl Probe for World {
        fn records<'a>(
            &'a self,
            name: &'a str,
            record_type: RecordType,
        ) -> BoxFuture<'a, Result<Vec<String>, ProbeFailure>> {
            let found = match self.records.get(&(name.to_owned(), key(record_type))) {
                _ if self.unknown.iter().any(|known| known == name) => Err(ProbeFailure::Unknown("silent".to_owned())),
                Some(found) => Ok(found.clone()),
                None => Err(ProbeFailure::Absent),
            };
            Box::pin(std::future::ready(found))
        }

        fn greeting<'a>(&'a self, server: SocketAddr, _: Option<IpAddr>) -> BoxFuture<'a, Result<String, String>> {
            let greeting = self.greetings.get(&server.ip()).cloned().ok_or_else(|| "refused".to_owned());
            Box::pin(std::future::ready(greeting))
        }

        fn sources(&self) -> Vec<IpAddr> {
            self.sources.clone()
        }

        fn permits(&self, address: IpAddr) -> bool {
            !address.is_loopback()
        }
    }

    #[test]
    fn the_reverse_name_of_an_address_has_its_parts_in_reverse() {
        assert_eq!(reversed_in([192, 0, 2, 99].into(), "bad.example"), "99.2.0.192.bad.example");
        let v6: IpAddr = "2001:db8::7".parse().unwrap();
        let expected = "7.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa";
        assert_eq!(reverse_name(v6), expected);
        assert_eq!(reverse_name("::ffff:192.0.2.5".parse().unwrap()), "5.2.0.192.in-addr.arpa");
    }
}
