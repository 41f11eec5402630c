//! Tests of TLS policies with scripted DNS and policy hosts, over a real store and a controlled clock.

mod slow;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use super::*;
use crate::base::entropy::SeededEntropy;
use crate::base::time::Timestamp;
use crate::domain::event::{Authenticated, TlsPolicy};
use crate::engine::ports::{BoxFuture, Clock, Requester, Resolve, RouteFailure, StsFetchFailure, Unfetched};
use crate::engine::settings::Settings;
use crate::smtp::outcome::Phase;
use crate::smtp::transcript::Transcript;
use crate::store::Store;
use crate::store::op::tls_report::day_of;
use crate::store::open::StoreEnvironment;
use crate::store::read::Read;
use crate::store::row::tls_policy::TlsReportRow;
use crate::store::schema;

const HOUR: Duration = Duration::from_secs(3600);
pub(in crate::engine) const MX: &str = "mx.example.test";

#[derive(Clone)]
struct SetClock(Arc<AtomicU64>);

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }
    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst))
    }
}

/// Scripted DNS and the policy host, in their current state.
#[derive(Default)]
pub(in crate::engine) struct Outside {
    txt: Mutex<Option<String>>,
    is_busy: AtomicBool,
    tlsa: Mutex<HashMap<String, Result<Vec<TlsaRecord>, LookupFailure>>>,
    policy: Mutex<Option<String>>,
    fetches: AtomicUsize,
    /// Whether the policy host accepts requests without answering.
    is_silent: AtomicBool,
}

impl Resolve for Outside {
    fn mail_hosts<'a>(&'a self, _: &'a DomainName, _: Requester) -> BoxFuture<'a, Result<Vec<MailHost>, RouteFailure>> {
        Box::pin(async { Ok(vec![host(&[])]) })
    }
    fn tlsa<'a>(&'a self, name: &'a str, _: Requester) -> BoxFuture<'a, Result<Vec<TlsaRecord>, LookupFailure>> {
        let found = self.tlsa.lock().unwrap().get(name).cloned();
        Box::pin(async { found.unwrap_or(Err(LookupFailure::Absent)) })
    }
    fn txt<'a>(&'a self, name: &'a str, _: Requester) -> BoxFuture<'a, Result<Vec<String>, LookupFailure>> {
        assert_eq!(name, "_mta-sts.example.test");
        let text = self.txt.lock().unwrap().clone();
        let is_busy = self.is_busy.load(Ordering::SeqCst);
        let none = if is_busy { LookupFailure::Unasked } else { LookupFailure::Absent };
        Box::pin(async move { text.filter(|_| !is_busy).map(|text| vec![text]).ok_or(none) })
    }
    fn txt_now<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Vec<String>, LookupFailure>> {
        self.txt(name, Requester::SERVICE)
    }
    fn host_addresses<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Vec<IpAddr>, LookupFailure>> {
        Box::pin(async { Err(LookupFailure::Absent) })
    }
    fn cname_now<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<String, LookupFailure>> {
        Box::pin(async { Err(LookupFailure::Absent) })
    }
}

impl PolicyHosts for Outside {
    fn sts_policy<'a>(&'a self, _: &'a DomainName, _: Requester) -> BoxFuture<'a, Result<String, Unfetched>> {
        self.fetches.fetch_add(1, Ordering::SeqCst);
        let policy = self.policy.lock().unwrap().clone();
        Box::pin(async {
            tokio::task::yield_now().await;
            while self.is_silent.load(Ordering::SeqCst) {
                tokio::task::yield_now().await;
            }
            let why = "the policy host could not be asked".to_owned();
            let failure = StsFetchFailure { fault: TlsFault::StsPolicyFetchError, why };
            policy.ok_or(Unfetched::Failed(failure))
        })
    }
}

pub(in crate::engine) struct World {
    pub(in crate::engine) outside: Arc<Outside>,
    clock: SetClock,
    pub(in crate::engine) policies: TlsPolicies,
    _directory: tempfile::TempDir,
}

impl World {
    pub(in crate::engine) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let clock = SetClock(Arc::new(AtomicU64::new(1_700_000_000_000)));
        let (entropy, wall) = (Arc::new(SeededEntropy::new(1)), clock.clone());
        let surroundings = StoreEnvironment { now: Arc::new(move || wall.time()), entropy: entropy.clone() };
        let store = Arc::new(Store::open(directory.path(), surroundings).unwrap());
        let settings = Settings { queue_lifetime: HOUR, ..Settings::for_tests() };
        let outside = Arc::new(Outside::default());
        let engine = Engine::new(store, Arc::new(clock.clone()), entropy, outside.clone(), settings);
        let policies = TlsPolicies::new(Arc::new(engine), outside.clone(), 25);
        Self { outside, clock, policies, _directory: directory }
    }

    pub(in crate::engine) fn announces(&self, id: &str) {
        *self.outside.txt.lock().unwrap() = Some(format!("v=STSv1; id={id};"));
    }

    pub(in crate::engine) fn publishes(&self, mode: &str, server: &str) {
        let text = format!("version: STSv1\nmode: {mode}\nmx: {server}\nmax_age: 604800\n");
        *self.outside.policy.lock().unwrap() = Some(text);
    }

    fn fails(&self) {
        *self.outside.policy.lock().unwrap() = None;
    }

    pub(in crate::engine) fn engine(&self) -> Arc<Engine> {
        Arc::clone(&self.policies.engine)
    }

    fn has_tlsa(&self, records: Result<Vec<TlsaRecord>, LookupFailure>) {
        self.outside.tlsa.lock().unwrap().insert(format!("_25._tcp.{MX}"), records);
    }

    pub(in crate::engine) fn passes(&self, time: Duration) {
        self.clock.0.fetch_add(u64::try_from(time.as_millis()).unwrap(), Ordering::SeqCst);
    }

    async fn policy(&self) -> DomainPolicy {
        self.policies.of(&domain(), Requester::SERVICE).await
    }

    async fn requires(&self, host: &MailHost) -> Result<TlsPolicy, TlsFault> {
        let required = self.policies.requirement(&self.policy().await, host, Requester::SERVICE).await;
        required.map(|required| required.policy()).map_err(|unmet| match unmet {
            NoPolicy::Unfit(unfit) => unfit.fault,
            NoPolicy::Unasked => panic!("it could not be asked for"),
        })
    }

    fn fetches(&self) -> usize {
        self.outside.fetches.load(Ordering::SeqCst)
    }

    /// Returns today's counts under a policy, after all posted operations are committed.
    pub(in crate::engine) async fn counted(&self, policy_type: PolicyType) -> TlsReportRow {
        let store = &self.policies.engine.store;
        let op = CountTlsSession {
            domain: "after.example".parse().unwrap(),
            policy_type,
            policy: Vec::new(),
            host: None,
            fault: None,
            report_after: None,
        };
        assert!(store.commit(op).await.is_ok());
        let of = schema::tls_reports_of(day_of(self.clock.now()), &domain());
        let row = store.snapshot().unwrap().row(&schema::tls_report(of, policy_type)).unwrap();
        row.unwrap_or_else(|| TlsReportRow::of(domain()))
    }
}

pub(in crate::engine) fn domain() -> DomainName {
    "example.test".parse().unwrap()
}

/// Returns the domain's server, with TLSA records at these names.
pub(in crate::engine) fn host(tlsa_names: &[&str]) -> MailHost {
    let tlsa_names = tlsa_names.iter().map(|name| (*name).to_owned()).collect();
    MailHost { name: MX.to_owned(), preference: 10, addresses: vec![Ipv4Addr::LOCALHOST.into()], tlsa_names }
}

fn record(usage: u8) -> TlsaRecord {
    TlsaRecord { usage, selector: 1, matching: 1, data: vec![7; 32] }
}

#[tokio::test]
async fn without_a_policy_tls_is_opportunistic() {
    let world = World::new();
    assert_eq!(world.requires(&host(&[])).await, Ok(TlsPolicy::Opportunistic));
    assert_eq!(world.fetches(), 0);
}

#[tokio::test]
async fn a_policy_is_fetched_once_and_then_enforced_from_the_store_even_without_its_host() {
    let world = World::new();
    world.announces("1");
    world.publishes("enforce", "*.example.test");
    assert_eq!(world.requires(&host(&[])).await, Ok(TlsPolicy::MtaSts));
    world.fails();
    for _ in 0..3 {
        assert_eq!(world.requires(&host(&[])).await, Ok(TlsPolicy::MtaSts));
    }
    assert_eq!(world.fetches(), 1);
    *world.outside.txt.lock().unwrap() = None;
    world.passes(6 * 24 * HOUR);
    assert_eq!(world.requires(&host(&[])).await, Ok(TlsPolicy::MtaSts), "a missing record does not end the policy");
    world.passes(24 * HOUR);
    assert_eq!(world.requires(&host(&[])).await, Ok(TlsPolicy::Opportunistic), "its own expiry ends it");
}

#[tokio::test]
async fn a_failed_query_does_not_count_as_the_absence_of_a_policy() {
    let world = World::new();
    world.announces("1");
    world.publishes("enforce", MX);
    let is_busy = |is_busy| world.outside.is_busy.store(is_busy, Ordering::SeqCst);
    is_busy(true);
    let policy = world.policy().await;
    assert_eq!(world.policies.requirement(&policy, &host(&[]), Requester::SERVICE).await, Err(NoPolicy::Unasked));
    is_busy(false);
    assert_eq!(world.requires(&host(&[])).await, Ok(TlsPolicy::MtaSts));
    is_busy(true);
    assert_eq!(world.requires(&host(&[])).await, Ok(TlsPolicy::MtaSts), "the stored policy applies");
    world.has_tlsa(Err(LookupFailure::Unasked));
    let policy = world.policy().await;
    assert_eq!(world.policies.requirement(&policy, &host(&[MX]), Requester::SERVICE).await, Err(NoPolicy::Unasked));
}

#[tokio::test]
async fn another_identifier_causes_an_immediate_fetch() {
    let world = World::new();
    world.announces("1");
    world.publishes("enforce", "elsewhere.example.test");
    assert_eq!(world.requires(&host(&[])).await, Err(TlsFault::StsPolicyInvalid));
    world.publishes("enforce", MX);
    assert_eq!(world.requires(&host(&[])).await, Err(TlsFault::StsPolicyInvalid), "not announced");
    world.announces("2");
    assert_eq!(world.requires(&host(&[])).await, Ok(TlsPolicy::MtaSts));
    world.announces("3");
    world.publishes("none", MX);
    assert_eq!(world.requires(&host(&[])).await, Ok(TlsPolicy::Opportunistic), "withdrawn");
    assert_eq!(world.fetches(), 3);
}

#[tokio::test]
async fn a_policy_in_use_is_renewed_daily_in_the_background() {
    let world = World::new();
    world.announces("1");
    world.publishes("enforce", MX);
    world.policy().await;
    for day in 1..=9 {
        world.passes(24 * HOUR);
        let is_renewed = || world.policies.cache.age_of(&domain()).is_some_and(|age| age < HOUR);
        while !is_renewed() {
            assert_eq!(world.requires(&host(&[])).await, Ok(TlsPolicy::MtaSts), "day {day}");
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(world.fetches(), 10);
}

#[tokio::test]
async fn concurrent_renewals_of_an_old_policy_share_one_fetch() {
    let world = World::new();
    world.announces("1");
    world.publishes("enforce", MX);
    world.policy().await;
    world.passes(24 * HOUR);
    for _ in 0..5 {
        world.policy().await;
    }
    // The runtime has one thread, so when the last fetch is done, the earlier ones are done too.
    while world.policies.cache.age_of(&domain()).is_none_or(|age| age >= HOUR) {
        tokio::task::yield_now().await;
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(world.fetches(), 2);
}

#[tokio::test]
async fn a_failed_renewal_keeps_the_policy_and_is_counted_once() {
    let world = World::new();
    world.announces("1");
    world.publishes("enforce", MX);
    world.policy().await;
    world.passes(24 * HOUR);
    world.fails();
    while world.counted(PolicyType::Sts).await.failures == 0 {
        assert_eq!(world.requires(&host(&[])).await, Ok(TlsPolicy::MtaSts));
        tokio::task::yield_now().await;
    }
    world.policy().await;
    let counted = world.counted(PolicyType::Sts).await;
    assert_eq!((world.fetches(), counted.failures), (2, 1));
    assert_eq!(counted.details[0].fault, TlsFault::StsPolicyFetchError);
}

#[tokio::test]
async fn after_a_failed_first_fetch_there_is_no_policy_and_no_retry_for_a_while() {
    let world = World::new();
    world.announces("1");
    world.fails();
    for _ in 0..3 {
        assert_eq!(world.requires(&host(&[])).await, Ok(TlsPolicy::Opportunistic));
    }
    assert_eq!(world.fetches(), 1);
    world.publishes("enforce", MX);
    world.passes(HOUR);
    assert_eq!(world.requires(&host(&[])).await, Ok(TlsPolicy::MtaSts));
    let counted = world.counted(PolicyType::Sts).await;
    assert_eq!((counted.failures, counted.details[0].fault), (1, TlsFault::StsPolicyFetchError));
}

#[tokio::test]
async fn concurrent_waiters_share_one_fetch() {
    let world = World::new();
    world.announces("1");
    world.publishes("enforce", MX);
    let (a, b, c) = tokio::join!(world.policy(), world.policy(), world.policy());
    assert!([a, b, c].iter().all(|policy| policy.enforced().is_some()));
    assert_eq!(world.fetches(), 1);
}

#[tokio::test]
async fn dane_takes_precedence_over_mta_sts() {
    let world = World::new();
    world.announces("1");
    world.publishes("enforce", "elsewhere.example.test");
    world.has_tlsa(Ok(vec![record(3), record(0)]));
    assert_eq!(world.requires(&host(&[MX])).await, Ok(TlsPolicy::Dane));
    assert_eq!(world.requires(&host(&[])).await, Err(TlsFault::StsPolicyInvalid), "if the MX records are not signed");
    let required = world.policies.requirement(&world.policy().await, &host(&[MX]), Requester::SERVICE).await.unwrap();
    let TlsRequirement::Dane(terms) = required else { panic!("{required:?}") };
    assert_eq!((terms.associations.len(), &terms.names[..]), (1, &[MX.to_owned(), "example.test".to_owned()][..]));
}

#[tokio::test]
async fn without_usable_tlsa_records_tls_is_required_and_mta_sts_still_applies() {
    let world = World::new();
    world.has_tlsa(Ok(vec![record(0), record(1)]));
    let required = world.policies.requirement(&world.policy().await, &host(&[MX]), Requester::SERVICE).await.unwrap();
    assert!(matches!(&required, TlsRequirement::Dane(terms) if terms.associations.is_empty()), "{required:?}");
    world.announces("1");
    world.publishes("enforce", MX);
    assert_eq!(world.requires(&host(&[MX])).await, Ok(TlsPolicy::MtaSts));
}

#[tokio::test]
async fn a_server_with_a_failed_tlsa_lookup_is_skipped() {
    let world = World::new();
    world.has_tlsa(Err(LookupFailure::Temporary("SERVFAIL".to_owned())));
    assert_eq!(world.requires(&host(&[MX])).await, Err(TlsFault::DnssecInvalid));
    assert_eq!(world.requires(&host(&["other.example.test", MX])).await, Err(TlsFault::DnssecInvalid));
    assert_eq!(world.requires(&host(&[])).await, Ok(TlsPolicy::Opportunistic), "no TLSA records were queried");
}

#[tokio::test]
async fn a_violation_in_testing_mode_is_delivered_and_counted() {
    let world = World::new();
    world.announces("1");
    world.publishes("testing", MX);
    let policy = world.policy().await;
    let required = world.policies.requirement(&policy, &host(&[]), Requester::SERVICE).await.unwrap();
    assert_eq!(required, TlsRequirement::Opportunistic);
    let facts = |authenticated| TlsFacts {
        version: "TLSv1.3".to_owned(),
        cipher: "TLS_AES_128_GCM_SHA256".to_owned(),
        authenticated,
        policy: TlsPolicy::Opportunistic,
    };
    let (proven, unproven) = (facts(Authenticated::Pkix), facts(Authenticated::None));
    for (host, tls) in [
        (MX, Ok(&proven)),
        (MX, Ok(&unproven)),
        ("other.example.test", Ok(&proven)),
        (MX, Err(TlsFault::StartTlsNotSupported)),
    ] {
        world.policies.count_opened(&policy, &required, host, tls);
    }
    let ending = Ending::TlsFailed("alert".to_owned());
    for (phase, ending) in [(Phase::StartTls, ending), (Phase::Connect, Ending::TimedOut)] {
        let outcome = Outcome { phase, ending, peer: None, tls: None, transcript: Transcript::default() };
        world.policies.count_refused(&policy, &required, MX, &outcome);
    }
    let counted = world.counted(PolicyType::Sts).await;
    let faults: Vec<_> = counted.details.iter().map(|detail| detail.fault.as_str()).collect();
    assert_eq!((counted.successes, counted.failures), (1, 4));
    assert_eq!(
        faults,
        ["certificate-not-trusted", "sts-policy-invalid", "starttls-not-supported", "validation-failure"]
    );
    assert_eq!(counted.policy[1], "mode: testing");
}
