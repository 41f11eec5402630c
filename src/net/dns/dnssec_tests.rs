//! The resolver with a trust anchor: secure, insecure and bogus answers (contract 8, RFC 7672).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::signed::{SignedZone, ZoneKey, serve};
use super::zone::ManualClock;
use super::*;
use crate::base::entropy::SeededEntropy;

const SIGNED: &str = "signed.example.";
const RECORDS: &str = "\
@ MX 10 mx
mx A 9.0.0.1
_25._tcp.mx TLSA 3 1 1 0000000000000000000000000000000000000000000000000000000000000000
alone A 9.0.0.2
aliased MX 10 alias
alias CNAME mx
away MX 10 mx.plain
plain NS ns
broken NS ns
";

struct World {
    resolver: Resolver,
}

/// A signed zone and two zones below it: one unsigned, and one whose signatures are missing. The trust anchor is the
/// result of `anchor` for the zone's key.
async fn world(anchor: impl Fn(&ZoneKey) -> Option<String>) -> World {
    let (key, other) = (Arc::new(ZoneKey::new(SIGNED)), ZoneKey::new("broken.signed.example."));
    let records = format!("{RECORDS}{}", other.digest_record());
    let below = "@ MX 10 mx\nmx A 9.0.0.3\n_25._tcp.mx TLSA 3 1 1 00\n";
    let address = serve(vec![
        SignedZone::new(SIGNED, &records, Some(Arc::clone(&key))),
        SignedZone::new("plain.signed.example.", below, None),
        SignedZone::new("broken.signed.example.", below, None),
        SignedZone::new("elsewhere.example.", below, None),
    ])
    .await;
    World { resolver: resolver(address, anchor(&key).as_deref()) }
}

fn resolver(address: SocketAddr, anchor: Option<&str>) -> Resolver {
    let trust_anchors = anchor.map(|text| Anchors::read(text).unwrap());
    let settings = DnsSettings {
        servers: vec![address],
        try_timeout: Duration::from_secs(2),
        trust_anchors,
        ..DnsSettings::default()
    };
    let (clock, entropy) = (Arc::new(ManualClock::default()), Arc::new(SeededEntropy::new(1)));
    Resolver::new(&settings, OwnHosts::default(), Arc::default(), clock, entropy).unwrap()
}

impl World {
    /// Returns the names where TLSA records of the domain's only server are looked up.
    async fn tlsa_names(&self, domain: &str) -> Result<Vec<String>, RouteFailure> {
        let domain: DomainName = domain.parse().unwrap();
        let hosts = self.resolver.mail_hosts(&domain, Requester::SERVICE).await?;
        assert_eq!(hosts.len(), 1);
        Ok(hosts[0].tlsa_names.clone())
    }
}

#[tokio::test]
async fn dane_applies_if_mx_and_addresses_are_signed() {
    for anchor in [ZoneKey::key_record, ZoneKey::digest_record] {
        let world = world(|key| Some(anchor(key))).await;
        assert_eq!(world.tlsa_names("signed.example").await.unwrap(), ["mx.signed.example"]);
        assert_eq!(world.tlsa_names("alone.signed.example").await.unwrap(), ["alone.signed.example"], "no MX, signed");
        assert_eq!(world.resolver.tlsa("_25._tcp.mx.signed.example", Requester::SERVICE).await.unwrap().len(), 1);
        assert_eq!(
            world.resolver.tlsa("_25._tcp.alone.signed.example", Requester::SERVICE).await,
            Err(LookupFailure::Absent)
        );
    }
}

#[tokio::test]
async fn tlsa_records_are_looked_up_at_the_end_of_an_alias_first() {
    let world = world(|key| Some(key.key_record())).await;
    let names = world.tlsa_names("aliased.signed.example").await.unwrap();
    assert_eq!(names, ["mx.signed.example", "alias.signed.example"]);
}

#[tokio::test]
async fn dane_does_not_apply_if_one_link_is_unsigned() {
    let world = world(|key| Some(key.key_record())).await;
    for domain in ["plain.signed.example", "away.signed.example", "elsewhere.example"] {
        assert_eq!(world.tlsa_names(domain).await.unwrap(), [""; 0], "{domain}");
    }
    assert_eq!(
        world.resolver.tlsa("_25._tcp.mx.plain.signed.example", Requester::SERVICE).await,
        Err(LookupFailure::Absent)
    );
}

#[tokio::test]
async fn without_a_trust_anchor_nothing_is_secure() {
    let world = world(|_| None).await;
    assert_eq!(world.tlsa_names("signed.example").await.unwrap(), [""; 0]);
    assert_eq!(world.resolver.tlsa("_25._tcp.mx.signed.example", Requester::SERVICE).await, Err(LookupFailure::Absent));
}

#[tokio::test]
async fn an_answer_without_its_required_signature_is_discarded() {
    let world = world(|key| Some(key.key_record())).await;
    assert!(matches!(world.tlsa_names("broken.signed.example").await, Err(RouteFailure::Temporary(_))));
    let tlsa = world.resolver.tlsa("_25._tcp.mx.broken.signed.example", Requester::SERVICE).await;
    assert!(matches!(tlsa, Err(LookupFailure::Temporary(_))), "{tlsa:?}");
}

#[tokio::test]
async fn an_answer_signed_by_another_key_is_discarded() {
    for anchor in [ZoneKey::key_record, ZoneKey::digest_record] {
        let world = world(|_| Some(anchor(&ZoneKey::new(SIGNED)))).await;
        assert!(matches!(world.tlsa_names("signed.example").await, Err(RouteFailure::Temporary(_))));
        assert_eq!(world.tlsa_names("elsewhere.example").await.unwrap(), [""; 0], "the anchor does not cover it");
    }
}

#[tokio::test]
async fn an_expired_signature_is_refused_regardless_of_the_program_s_clock() {
    let key = Arc::new(ZoneKey::out_of_time(SIGNED));
    let anchor = key.key_record();
    let address = serve(vec![SignedZone::new(SIGNED, RECORDS, Some(key))]).await;
    let world = World { resolver: resolver(address, Some(&anchor)) };
    assert!(matches!(world.tlsa_names("signed.example").await, Err(RouteFailure::Temporary(_))));
}

#[tokio::test]
async fn a_signed_negative_answer_is_secure() {
    let world = world(|key| Some(key.key_record())).await;
    let gone = "gone.signed.example".parse().unwrap();
    assert_eq!(world.resolver.mail_hosts(&gone, Requester::SERVICE).await, Err(RouteFailure::NoSuchDomain));
}
