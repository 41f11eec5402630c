//! Check that source addresses have reverse DNS names that match the EHLO name. Otherwise large receivers refuse the
//! mail.

use std::net::IpAddr;

use super::{addresses, reverse_name};
use crate::engine::ports::probe::{Probe, ProbeFailure, RecordType};

/// Reverse DNS names of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reverse {
    /// The address has the EHLO name, and the EHLO name resolves to the address.
    LeadsBack,
    /// The address has no name.
    Nameless,
    /// The address has these names, but they do not resolve to the address.
    NotConfirmed(Vec<String>),
    /// These names resolve to the address, but differ from the EHLO name.
    OtherName(Vec<String>),
    /// No name server answered.
    Unknown(String),
}

impl Reverse {
    /// Describes the names of `address`, which greets as `ehlo`, in a sentence without full stop.
    pub fn describe(&self, address: IpAddr, ehlo: &str) -> String {
        let named = |names: &[String]| format!("{address} has the reverse name {}", names.join(", "));
        match self {
            Self::LeadsBack => format!("{address} has the reverse name {ehlo}, which resolves to it"),
            Self::Nameless => format!("{address} has no reverse name (PTR)"),
            Self::NotConfirmed(names) => format!("{}, which does not resolve to it", named(names)),
            Self::OtherName(names) => format!("{}, but greets as {ehlo} in EHLO", named(names)),
            Self::Unknown(why) => format!("{address} could not be looked up: {why}"),
        }
    }
}

/// Returns the addresses that receivers see for a relay: its own, or those that the system sends from. For a family
/// behind NAT, those that the EHLO name resolves to.
pub async fn seen_addresses(probe: &dyn Probe, sources: &[IpAddr], ehlo: &str) -> Vec<IpAddr> {
    let own = if sources.is_empty() { probe.sources() } else { sources.to_vec() };
    let is_unknown = own.is_empty();
    let (mut seen, private): (Vec<_>, Vec<_>) = own.into_iter().partition(|address| probe.permits(*address));
    if !is_unknown && private.is_empty() {
        return seen;
    }
    let mut named = addresses(probe, ehlo).await.unwrap_or_default();
    let is_translated = |address: &IpAddr| is_unknown || private.iter().any(|own| own.is_ipv4() == address.is_ipv4());
    named.retain(|address| probe.permits(*address) && is_translated(address) && !seen.contains(address));
    seen.extend(named);
    seen
}

/// Looks up the names of `address` and their addresses.
pub async fn reverse(probe: &dyn Probe, address: IpAddr, ehlo: &str) -> Reverse {
    let names = match probe.records(&reverse_name(address), RecordType::Ptr).await {
        Ok(names) => names,
        Err(ProbeFailure::Absent) => return Reverse::Nameless,
        Err(ProbeFailure::Unknown(why)) => return Reverse::Unknown(why),
    };
    let mut confirmed = Vec::new();
    let mut unknown = None;
    for name in &names {
        match addresses(probe, name).await {
            Ok(found) if found.contains(&address) => confirmed.push(name.as_str()),
            Ok(_) | Err(ProbeFailure::Absent) => {}
            Err(ProbeFailure::Unknown(why)) => unknown = Some(why),
        }
    }
    match unknown {
        _ if confirmed.iter().any(|name| name.eq_ignore_ascii_case(ehlo)) => Reverse::LeadsBack,
        // The name whose lookup failed may be the one that resolves to the address.
        Some(why) => Reverse::Unknown(why),
        None if confirmed.is_empty() => Reverse::NotConfirmed(names),
        None => Reverse::OtherName(names),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::probe::tests::World;

    #[tokio::test]
    async fn an_address_is_judged_by_its_names_that_resolve_back_to_it() {
        let address: IpAddr = [192, 0, 2, 7].into();
        let ptr = "7.2.0.192.in-addr.arpa";
        let named = |names: &[&str]| World::default().with(ptr, RecordType::Ptr, names);
        let judged = async |world: World| reverse(&world, address, "mail.example.com").await;
        assert_eq!(judged(World::default()).await, Reverse::Nameless);
        let names = vec!["mail.example.com".to_owned()];
        assert_eq!(judged(named(&["mail.example.com"])).await, Reverse::NotConfirmed(names));
        let back = named(&["mail.example.com"]).with("mail.example.com", RecordType::A, &["192.0.2.7"]);
        assert_eq!(judged(back).await, Reverse::LeadsBack);
        let other = named(&["host.example"]).with("host.example", RecordType::A, &["192.0.2.7"]);
        assert_eq!(judged(other).await, Reverse::OtherName(vec!["host.example".to_owned()]));
        let mut silent = named(&["mail.example.com"]);
        silent.unknown.push("mail.example.com".to_owned());
        assert_eq!(judged(silent).await, Reverse::Unknown("silent".to_owned()));
    }

    #[tokio::test]
    async fn behind_nat_receivers_see_the_addresses_of_the_ehlo_name() {
        let world = World { sources: vec![[127, 0, 0, 1].into()], ..World::default() };
        let world = world.with("mail.example.com", RecordType::A, &["192.0.2.7"]);
        assert_eq!(seen_addresses(&world, &[], "mail.example.com").await, [IpAddr::from([192, 0, 2, 7])]);
        assert_eq!(seen_addresses(&world, &[[192, 0, 2, 9].into()], "x").await, [IpAddr::from([192, 0, 2, 9])]);
        let both: [IpAddr; 2] = ["127.0.0.1", "2001:db8::7"].map(|text| text.parse().unwrap());
        let seen = seen_addresses(&world, &both, "mail.example.com").await;
        assert_eq!(seen, [both[1], IpAddr::from([192, 0, 2, 7])], "IPv4 is behind NAT");
    }
}
