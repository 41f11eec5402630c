//! DNS block lists (RFC 5782). A list is trusted only while its test entries are correct: shut-down lists answer
//! everything or nothing.

use std::net::{IpAddr, Ipv4Addr};

use super::reversed_in;
use crate::engine::ports::probe::{Probe, ProbeFailure, RecordType};

/// The entry of every working list (RFC 5782 5).
const LISTED: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
/// An entry of no working list.
const UNLISTED: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1));

/// The state of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// The list works.
    Works,
    /// The list can't be trusted.
    Broken(String),
}

/// A block list's answer about an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listing {
    /// The address is on the list, with these codes.
    Listed(Vec<String>),
    /// The address is not on the list.
    Clear,
    /// The list does not answer, or refuses this resolver.
    Unknown(String),
}

/// Checks that a list contains the first test entry, and does not contain the second.
pub async fn health(probe: &dyn Probe, zone: &str) -> Health {
    match listing(probe, zone, LISTED).await {
        Listing::Listed(_) => {}
        Listing::Clear => return Health::Broken("it does not list its test entry 127.0.0.2".to_owned()),
        Listing::Unknown(why) => return Health::Broken(why),
    }
    match listing(probe, zone, UNLISTED).await {
        Listing::Clear => Health::Works,
        Listing::Listed(_) => Health::Broken("it lists 127.0.0.1, so it lists everything".to_owned()),
        Listing::Unknown(why) => Health::Broken(why),
    }
}

/// Looks up an address in a list.
pub async fn listing(probe: &dyn Probe, zone: &str, address: IpAddr) -> Listing {
    match probe.records(&reversed_in(address, zone), RecordType::A).await {
        Ok(codes) => judged(codes),
        Err(ProbeFailure::Absent) => Listing::Clear,
        Err(ProbeFailure::Unknown(why)) => Listing::Unknown(why),
    }
}

/// Answers outside 127.0.0.0/8 are not entries, and those in 127.255.255.0/24 are errors of the query.
fn judged(codes: Vec<String>) -> Listing {
    let parsed: Vec<Ipv4Addr> = codes.iter().filter_map(|code| code.parse().ok()).collect();
    let is_error = |code: &&Ipv4Addr| code.octets()[..3] == [127, 255, 255];
    if let Some(error) = parsed.iter().find(is_error) {
        return Listing::Unknown(format!("the list refuses the query with {error}"));
    }
    let entries: Vec<_> = parsed.iter().filter(|code| code.is_loopback()).map(ToString::to_string).collect();
    if entries.is_empty() { Listing::Clear } else { Listing::Listed(entries) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::probe::tests::World;

    const ZONE: &str = "bad.example";

    fn list(entries: &[(&str, &str)]) -> World {
        entries.iter().fold(World::default(), |world, (address, code)| {
            let address: IpAddr = address.parse().unwrap();
            world.with(&reversed_in(address, ZONE), RecordType::A, &[code])
        })
    }

    #[tokio::test]
    async fn a_list_works_while_it_has_only_the_first_test_entry() {
        let works = async |entries: &[(&str, &str)]| health(&list(entries), ZONE).await == Health::Works;
        assert!(works(&[("127.0.0.2", "127.0.0.2")]).await);
        assert!(!works(&[]).await, "it answers nothing");
        assert!(!works(&[("127.0.0.2", "127.0.0.2"), ("127.0.0.1", "127.0.0.2")]).await, "it answers everything");
        assert!(!works(&[("127.0.0.2", "127.255.255.254")]).await, "it refuses the resolver");
        assert!(!works(&[("127.0.0.2", "203.0.113.1")]).await, "a resolver that answers for nonexistent names");
    }

    #[tokio::test]
    async fn an_answer_counts_only_in_127_0_0_0_8_except_127_255_255_0_24() {
        let of = async |code: &str| listing(&list(&[("192.0.2.1", code)]), ZONE, [192, 0, 2, 1].into()).await;
        assert_eq!(of("127.0.0.4").await, Listing::Listed(vec!["127.0.0.4".to_owned()]));
        assert_eq!(of("203.0.113.1").await, Listing::Clear);
        assert!(matches!(of("127.255.255.255").await, Listing::Unknown(_)));
        assert_eq!(listing(&list(&[]), ZONE, [192, 0, 2, 1].into()).await, Listing::Clear);
    }
}
