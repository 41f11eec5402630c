//! The resolver against a scripted server: the tests of contract 6 and 8 about DNS.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::rdata::PTR;
use hickory_resolver::proto::rr::{RData, RecordType};

use super::zone::{DnsBehaviour, ManualClock, Zone, mx};
use super::*;
use crate::base::entropy::SeededEntropy;

struct World {
    zone: Zone,
    clock: Arc<ManualClock>,
    resolver: Resolver,
}

impl World {
    async fn new() -> Self {
        Self::with(OwnHosts::default(), 1).await
    }

    async fn with(own: OwnHosts, seed: u64) -> Self {
        let zone = Zone::serve().await;
        let servers = vec![zone.address];
        Self::asking(servers, zone, own, seed)
    }

    fn asking(servers: Vec<SocketAddr>, zone: Zone, own: OwnHosts, seed: u64) -> Self {
        let clock = Arc::new(ManualClock::default());
        let settings = DnsSettings { servers, try_timeout: Duration::from_millis(500), ..DnsSettings::default() };
        let guard = Arc::new(Guard::new(vec!["127.0.0.0/8".parse().unwrap()]));
        let entropy = Arc::new(SeededEntropy::new(seed));
        let resolver = Resolver::new(&settings, own, guard, clock.clone(), entropy).unwrap();
        Self { zone, clock, resolver }
    }

    async fn route(&self, name: &str) -> Result<Vec<MailHost>, RouteFailure> {
        self.resolver.mail_hosts(&domain(name), Requester::SERVICE).await
    }

    async fn names(&self, name: &str) -> Vec<String> {
        self.route(name).await.unwrap().into_iter().map(|host| host.name).collect()
    }
}

fn domain(name: &str) -> DomainName {
    serde_json::from_value(name.into()).unwrap()
}

fn addresses(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[tokio::test]
async fn servers_are_ordered_by_preference_with_alternating_families_and_two_addresses_of_each() {
    let world = World::new().await;
    world.zone.mx("site.example", &[(20, "b.site.example"), (10, "A.site.example.")]);
    world.zone.a("a.site.example", &["9.0.0.1", "9.0.0.2", "9.0.0.3"]);
    world.zone.aaaa("a.site.example", &["2606:4700::1", "2606:4700::2", "2606:4700::3"]);
    world.zone.aaaa("b.site.example", &["2606:4700::9"]);
    let a = addresses(&["9.0.0.1", "2606:4700::1", "9.0.0.2", "2606:4700::2"]);
    let b = addresses(&["2606:4700::9"]);
    assert_eq!(
        world.route("site.example").await.unwrap(),
        [
            MailHost { name: "a.site.example".into(), preference: 10, addresses: a, tlsa_names: Vec::new() },
            MailHost { name: "b.site.example".into(), preference: 20, addresses: b, tlsa_names: Vec::new() },
        ]
    );
}

#[tokio::test]
async fn servers_of_one_preference_are_shuffled_and_limited_to_twenty() {
    let names: Vec<String> = (1..=22).map(|n| format!("m{n}.example")).collect();
    let mut orders = Vec::new();
    for seed in 0..8 {
        let world = World::with(OwnHosts::default(), seed).await;
        let exchanges: Vec<_> = names.iter().map(|name| (10, &**name)).collect();
        world.zone.mx("site.example", &exchanges);
        for name in &names {
            world.zone.a(name, &["9.0.0.1"]);
        }
        orders.push(world.names("site.example").await);
    }
    assert!(orders.iter().all(|order| order.len() == 20));
    orders.sort();
    orders.dedup();
    assert!(orders.len() > 1, "{orders:?}");
}

#[tokio::test]
async fn a_lone_dot_is_a_null_mx_and_one_among_others_is_ignored() {
    let world = World::new().await;
    world.zone.mx("null.example", &[(0, ".")]).mx("mixed.example", &[(0, "."), (10, "m.example")]);
    world.zone.a("m.example", &["9.0.0.1"]);
    assert_eq!(world.route("null.example").await, Err(RouteFailure::NullMx));
    assert_eq!(world.names("mixed.example").await, ["m.example"]);
}

#[tokio::test]
async fn without_mx_records_the_domain_is_its_own_server() {
    let world = World::new().await;
    world.zone.a("site.example", &["9.0.0.1"]).says("site.example", RecordType::MX, DnsBehaviour::NoData(60));
    let addresses = addresses(&["9.0.0.1"]);
    let host = MailHost { name: "site.example".into(), preference: 0, addresses, tlsa_names: Vec::new() };
    assert_eq!(world.route("site.example").await, Ok(vec![host]));
}

#[tokio::test]
async fn a_nonexistent_domain_differs_from_a_failed_lookup() {
    let world = World::new().await;
    assert_eq!(world.route("gone.example").await, Err(RouteFailure::NoSuchDomain));
    for (name, say) in [
        ("servfail.example", DnsBehaviour::Error(ResponseCode::ServFail)),
        ("refused.example", DnsBehaviour::Error(ResponseCode::Refused)),
        ("silent.example", DnsBehaviour::Silence),
    ] {
        // The name has an address, which must not be taken for an implicit MX.
        world.zone.says(name, RecordType::MX, say).a(name, &["9.0.0.1"]);
        assert!(matches!(world.route(name).await, Err(RouteFailure::Temporary(_))), "{name}");
        assert_eq!(world.zone.asked(name, RecordType::A), 0, "{name}");
    }
}

#[tokio::test]
async fn a_server_that_does_not_resolve_is_skipped() {
    let world = World::new().await;
    world.zone.mx("site.example", &[(10, "gone.example"), (20, "broken.example"), (30, "m.example")]);
    world.zone.says("broken.example", RecordType::A, DnsBehaviour::Error(ResponseCode::ServFail));
    world.zone.says("broken.example", RecordType::AAAA, DnsBehaviour::Error(ResponseCode::ServFail));
    world.zone.a("m.example", &["9.0.0.1"]);
    assert_eq!(world.names("site.example").await, ["m.example"]);
}

#[tokio::test]
async fn a_domain_without_hosts_fails_permanently_only_if_every_answer_is_authoritative() {
    let world = World::new().await;
    world.zone.mx("certain.example", &[(10, "gone.example"), (20, "empty.example")]);
    world.zone.txt("empty.example", &["no address here"]);
    world.zone.mx("uncertain.example", &[(10, "gone.example"), (20, "broken.example")]);
    world.zone.says("broken.example", RecordType::AAAA, DnsBehaviour::Error(ResponseCode::ServFail));
    assert_eq!(world.route("certain.example").await, Err(RouteFailure::NoHost));
    assert!(matches!(world.route("uncertain.example").await, Err(RouteFailure::Temporary(_))));
}

#[tokio::test]
async fn the_sixth_server_is_used_if_the_first_five_have_no_address() {
    let world = World::new().await;
    let gone: Vec<String> = (1..=5).map(|n| format!("gone{n}.example")).collect();
    let mut exchanges: Vec<_> = gone.iter().map(|name| (10, &**name)).collect();
    exchanges.push((20, "m.example"));
    world.zone.mx("site.example", &exchanges).a("m.example", &["9.0.0.1"]);
    assert_eq!(world.names("site.example").await, ["m.example"]);
}

#[tokio::test]
async fn addresses_that_the_guard_refuses_are_skipped() {
    let world = World::new().await;
    world.zone.mx("mixed.example", &[(10, "mixed-host.example")]);
    world.zone.a("mixed-host.example", &["10.0.0.1", "192.168.0.1", "127.0.0.9", "9.0.0.1"]);
    world.zone.aaaa("mixed-host.example", &["::1", "fd00::1"]);
    world.zone.mx("blocked.example", &[(10, "inside.example"), (20, "gone.example")]);
    world.zone.a("inside.example", &["169.254.169.254"]);
    let hosts = world.route("mixed.example").await.unwrap();
    assert_eq!(hosts[0].addresses, addresses(&["127.0.0.9", "9.0.0.1"]));
    assert_eq!(world.route("blocked.example").await, Err(RouteFailure::BlockedDestination));
}

#[tokio::test]
async fn our_own_host_ends_the_list_and_is_a_loop_if_it_is_the_best() {
    let own = OwnHosts::new(["MX.ours.example.".to_owned()], addresses(&["9.9.9.1"]));
    let world = World::with(own, 1).await;
    world.zone.a("m.example", &["9.0.0.1"]).a("worse.example", &["9.0.0.2"]).a("alias.example", &["9.9.9.1"]);
    world.zone.mx("by-name.example", &[(10, "m.example"), (20, "mx.ours.example"), (30, "worse.example")]);
    world.zone.mx("by-address.example", &[(10, "m.example"), (20, "alias.example"), (20, "worse.example")]);
    world.zone.mx("loop.example", &[(10, "mx.ours.example"), (20, "worse.example")]);
    world.zone.mx("loop-by-address.example", &[(10, "alias.example"), (20, "worse.example")]);
    assert_eq!(world.names("by-name.example").await, ["m.example"]);
    assert_eq!(world.names("by-address.example").await, ["m.example"]);
    assert_eq!(world.route("loop.example").await, Err(RouteFailure::Loop));
    assert_eq!(world.route("loop-by-address.example").await, Err(RouteFailure::Loop));
}

#[tokio::test]
async fn an_mx_record_with_an_address_as_its_name_is_used_as_an_address() {
    let world = World::new().await;
    world.zone.mx("site.example", &[(10, "9.0.0.1")]).mx("inside.example", &[(10, "10.0.0.1")]);
    assert_eq!(world.route("site.example").await.unwrap()[0].addresses, addresses(&["9.0.0.1"]));
    assert_eq!(world.route("inside.example").await, Err(RouteFailure::BlockedDestination));
}

#[tokio::test]
async fn aliases_are_followed_and_alias_loops_end() {
    let world = World::new().await;
    world.zone.says("alias.example", RecordType::MX, DnsBehaviour::Alias("site.example".into(), 300));
    world.zone.mx("site.example", &[(10, "m.example")]);
    world
        .zone
        .says("m.example", RecordType::A, DnsBehaviour::Alias("real.example".into(), 300))
        .a("real.example", &["9.0.0.1"]);
    world.zone.says("m.example", RecordType::AAAA, DnsBehaviour::Alias("real.example".into(), 300));
    world.zone.says("round.example", RecordType::MX, DnsBehaviour::Alias("and-round.example".into(), 300));
    world.zone.says("and-round.example", RecordType::MX, DnsBehaviour::Alias("round.example".into(), 300));
    let hosts = world.route("alias.example").await.unwrap();
    assert_eq!((&*hosts[0].name, &hosts[0].addresses), ("m.example", &addresses(&["9.0.0.1"])));
    assert_eq!(world.route("round.example").await, Err(RouteFailure::NoHost));
}

#[tokio::test]
async fn a_truncated_answer_is_requested_again_over_tcp() {
    let world = World::new().await;
    world.zone.says("site.example", RecordType::MX, DnsBehaviour::OnlyTcp(vec![mx(10, "m.example")]));
    world.zone.a("m.example", &["9.0.0.1"]);
    assert_eq!(world.names("site.example").await, ["m.example"]);
}

#[tokio::test]
async fn answers_are_cached_for_their_ttl_and_at_least_a_second() {
    let world = World::new().await;
    world.zone.mx("site.example", &[(10, "m.example")]);
    world.zone.says("m.example", RecordType::AAAA, DnsBehaviour::NoData(3600)).a("m.example", &["9.0.0.1"]);
    world.zone.says("site.example", RecordType::MX, DnsBehaviour::Records(vec![mx(10, "m.example")], 0));
    world.names("site.example").await;
    world.clock.advance(Duration::from_millis(999));
    world.names("site.example").await;
    assert_eq!(world.zone.asked("site.example", RecordType::MX), 1);
    world.clock.advance(Duration::from_millis(1));
    world.names("site.example").await;
    assert_eq!(world.zone.asked("site.example", RecordType::MX), 2);
    assert_eq!(world.zone.asked("m.example", RecordType::A), 1);
    world.clock.advance(Duration::from_secs(299));
    world.names("site.example").await;
    assert_eq!(world.zone.asked("m.example", RecordType::A), 2);
    assert_eq!(world.zone.asked("m.example", RecordType::AAAA), 2, "a negative answer lasts 300 s at most");
}

#[tokio::test]
async fn a_failure_is_forgotten_after_ten_seconds() {
    let world = World::new().await;
    world.zone.says("site.example", RecordType::MX, DnsBehaviour::Error(ResponseCode::ServFail));
    assert!(world.route("site.example").await.is_err());
    let tries = world.zone.asked("site.example", RecordType::MX);
    assert_eq!(tries, 2, "two tries");
    world.clock.advance(Duration::from_secs(9));
    assert!(world.route("site.example").await.is_err());
    assert_eq!(world.zone.asked("site.example", RecordType::MX), tries);
    world.zone.mx("site.example", &[(10, "m.example")]).a("m.example", &["9.0.0.1"]);
    world.clock.advance(Duration::from_secs(1));
    assert_eq!(world.names("site.example").await, ["m.example"]);
}

#[tokio::test]
async fn dead_name_servers_never_fail_a_working_domain() {
    let world = World::new().await;
    world.zone.mx("site.example", &[(10, "m.example")]).a("m.example", &["9.0.0.1"]);
    let mut dead = tokio::task::JoinSet::new();
    for n in 0..600 {
        let name = format!("dead{n}.example");
        world.zone.says(&name, RecordType::MX, DnsBehaviour::Silence);
        let resolver = world.resolver.clone();
        dead.spawn(async move { resolver.mail_hosts(&domain(&name), Requester::SERVICE).await });
    }
    while world.zone.asked("dead0.example", RecordType::MX) == 0 {
        tokio::task::yield_now().await;
    }
    let other = world.resolver.mail_hosts(&domain("site.example"), Requester::CHECKS).await;
    assert!(other.is_ok(), "another account's query has a slot at once: {other:?}");
    let route = loop {
        // A query without a permit says nothing about the name and is not cached.
        let route = world.route("site.example").await;
        if route != Err(RouteFailure::Unasked) {
            break route;
        }
    };
    assert_eq!(route.unwrap()[0].addresses, addresses(&["9.0.0.1"]));
    let ended = dead.join_next().await.unwrap().unwrap();
    assert!(matches!(ended, Err(RouteFailure::Temporary(_))), "{ended:?}");
}

#[tokio::test]
async fn a_burst_for_one_domain_sends_one_query() {
    let world = World::new().await;
    world.zone.mx("site.example", &[(10, "m.example")]).a("m.example", &["9.0.0.1"]);
    let site = domain("site.example");
    let route = || world.resolver.mail_hosts(&site, Requester::SERVICE);
    let (one, two, three, four) = tokio::join!(route(), route(), route(), route());
    assert!(one.is_ok() && one == two && two == three && three == four);
    assert_eq!(world.zone.asked("site.example", RecordType::MX), 1);
    assert_eq!(world.zone.asked("m.example", RecordType::A), 1);
}

#[tokio::test]
async fn after_a_failed_server_the_next_one_is_queried_and_preferred() {
    for failure in
        [DnsBehaviour::Error(ResponseCode::ServFail), DnsBehaviour::Error(ResponseCode::Refused), DnsBehaviour::Silence]
    {
        let (bad, good) = (Zone::serve().await, Zone::serve().await);
        bad.says("site.example", RecordType::MX, failure).a("m.example", &["9.0.0.66"]);
        good.mx("site.example", &[(10, "m.example")]).a("m.example", &["9.0.0.1"]);
        let servers = vec![bad.address, good.address];
        let world = World::asking(servers, good, OwnHosts::default(), 1);
        assert_eq!(world.route("site.example").await.unwrap()[0].addresses, addresses(&["9.0.0.1"]));
        // Within one try the datagram is sent again to a silent server.
        assert!(bad.asked("site.example", RecordType::MX) >= 1);
        assert_eq!(bad.asked("m.example", RecordType::A), 0);
    }
}

#[tokio::test]
async fn domain_checks_bypass_the_cache() {
    let world = World::new().await;
    let name = "s1._domainkey.site.example";
    assert_eq!(world.resolver.txt_now(name).await, Err(LookupFailure::Absent));
    world.zone.txt(name, &["v=DKIM1; k=rsa; ", "p=abc"]);
    assert_eq!(world.resolver.txt_now(name).await, Ok(vec!["v=DKIM1; k=rsa; p=abc".to_owned()]));
    world.zone.says("rp.site.example", RecordType::CNAME, DnsBehaviour::Alias("Bounces.Ours.example.".into(), 300));
    assert_eq!(world.resolver.cname_now("rp.site.example").await, Ok("bounces.ours.example".to_owned()));
    world.zone.says(name, RecordType::TXT, DnsBehaviour::Error(ResponseCode::ServFail));
    assert!(matches!(world.resolver.txt_now(name).await, Err(LookupFailure::Temporary(_))));
    let now = async || world.resolver.host_addresses_now("host.example").await;
    assert_eq!(now().await, Err(LookupFailure::Absent));
    assert_eq!(world.resolver.host_addresses("host.example").await, Err(LookupFailure::Absent));
    world.zone.a("host.example", &["9.0.0.1"]);
    assert_eq!(world.resolver.host_addresses("host.example").await, Err(LookupFailure::Absent), "the cache's answer");
    assert_eq!(now().await, Ok(addresses(&["9.0.0.1"])));
    assert_eq!(world.resolver.host_addresses_now("9.0.0.2").await, Ok(addresses(&["9.0.0.2"])));
}

#[tokio::test]
async fn half_an_answer_is_none_for_a_lookup_of_one_family() {
    let world = World::new().await;
    world.zone.a("host.example", &["9.0.0.1"]);
    world.zone.says("host.example", RecordType::AAAA, DnsBehaviour::Error(ResponseCode::ServFail));
    let of = async |family| world.resolver.family_addresses_now("host.example", family).await;
    assert_eq!(world.resolver.host_addresses_now("host.example").await, Ok(addresses(&["9.0.0.1"])));
    assert_eq!(of(Family::V4).await, Ok(addresses(&["9.0.0.1"])));
    assert!(matches!(of(Family::V6).await, Err(LookupFailure::Temporary(_))));
    world.zone.aaaa("host.example", &["2606:4700::1"]);
    assert_eq!(of(Family::V6).await, Ok(addresses(&["2606:4700::1"])));
    assert_eq!(world.resolver.family_addresses_now("9.0.0.2", Family::V6).await, Err(LookupFailure::Absent));
}

#[tokio::test]
async fn host_addresses_are_returned_without_the_guard_s_check() {
    let world = World::new().await;
    world.zone.a("host.example", &["10.0.0.1"]).aaaa("host.example", &["2606:4700::1"]);
    let resolver: &dyn HostAddresses = &world.resolver;
    assert_eq!(
        resolver.addresses("Host.example", Requester::SERVICE).await,
        Ok(addresses(&["10.0.0.1", "2606:4700::1"]))
    );
    assert_eq!(resolver.addresses("10.0.0.1", Requester::SERVICE).await, Ok(addresses(&["10.0.0.1"])));
    assert_eq!(resolver.addresses("gone.example", Requester::SERVICE).await, Err(LookupFailure::Absent));
    assert_eq!(resolver.addresses("localhost", Requester::SERVICE).await, Ok(addresses(&["127.0.0.1", "::1"])));
}

#[tokio::test]
async fn unanswered_aaaa_queries_do_not_delay_ipv4_addresses() {
    let (moment, long) = (Duration::from_millis(5), Duration::from_secs(600));
    let found = || LookupResult::insecure(Answer::Found([RecordData::Address(Ipv4Addr::LOCALHOST.into())].into()));
    let none = || LookupResult::insecure(Answer::NoData);
    let late = async || {
        tokio::task::yield_now().await;
        found()
    };
    let silence = first_decides(async { found() }, std::future::pending(), moment).await;
    assert_eq!(silence, (found(), LookupResult::insecure(silent())));
    assert_eq!(first_decides(async { found() }, late(), long).await, (found(), found()));
    assert_eq!(first_decides(late(), async { none() }, moment).await, (found(), none()));
    assert_eq!(
        first_decides(async { none() }, late(), moment).await,
        (none(), found()),
        "no other addresses can follow"
    );
}

#[tokio::test]
async fn the_servers_decide_the_names_of_every_address() {
    let world = World::new().await;
    let pointer = RData::PTR(PTR("Mail.Ours.example.".parse().unwrap()));
    world.zone.says("7.0.0.127.in-addr.arpa", RecordType::PTR, DnsBehaviour::Records(vec![pointer], 300));
    assert_eq!(world.resolver.ptr_now([127, 0, 0, 7].into()).await, Ok(vec!["mail.ours.example".to_owned()]));
    assert_eq!(world.resolver.ptr_now([127, 0, 0, 8].into()).await, Err(LookupFailure::Absent));
}
