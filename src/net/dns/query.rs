//! Queries to DNS servers. Only this file, `fact` and the validation files use hickory's types.
//!
//! hickory's own cache is disabled: it follows the system's clock, and its rules for refused and failed answers differ
//! from contract 8.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError, NoRecords};
use hickory_resolver::proto::dnssec::{Proof, TrustAnchors};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::system_conf::read_system_conf;
use tokio::time::timeout;

use super::DnsSettings;
use super::answer::{Answer, LookupResult, TimedResult};
use super::fact::RecordData;
use super::validation::{QUESTIONS, Trust, Validation, trust_of, worth_of_nothing};
use crate::engine::ports::Requester;
use crate::engine::query_places::{NoQuerySlot, QueryPlaces};

/// Maximum number of queries in flight that have started recently.
const PROMPT_MAX: u32 = 256;
/// Maximum number of queries in flight that have taken long.
const SLOW_MAX: u32 = 1024;
/// Maximum number of queries in flight over one TCP connection. Accounts with few queries may exceed the other limits.
const OVER_TCP_MAX: usize = 2 * (PROMPT_MAX + SLOW_MAX) as usize;
/// Minimum number of tries of one query. There are as many tries as servers, at least these two, and at most
/// resolv.conf's three.
const TRIES_MIN: usize = 2;
const TRIES_MAX: usize = 3;
/// Maximum number of exchanges used of a domain.
const EXCHANGES_MAX: usize = 20;
/// Minimum TTL. TTLs are honoured, but a TTL of 0 would cause a query for every message of a burst (contract 8: at
/// least 1 s).
const TTL_MIN: Duration = Duration::from_secs(1);
/// Maximum TTL: a week (RFC 8767 4).
const TTL_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// Maximum TTL of a negative answer, regardless of the zone's SOA.
const NEGATIVE_TTL_MAX: Duration = Duration::from_secs(300);

/// Record type to query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    Aaaa,
    /// Mail exchangers.
    Mx,
    /// Texts.
    Txt,
    /// The alias of the name itself.
    Cname,
    /// Certificates of a server (RFC 6698).
    Tlsa,
}

impl Kind {
    const fn record_type(self) -> RecordType {
        match self {
            Self::A => RecordType::A,
            Self::Aaaa => RecordType::AAAA,
            Self::Mx => RecordType::MX,
            Self::Txt => RecordType::TXT,
            Self::Cname => RecordType::CNAME,
            Self::Tlsa => RecordType::TLSA,
        }
    }
}

/// Whether a query may wait for a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SlotWait {
    /// The query waits for a slot.
    WaitsForPlace,
    /// Without a free slot, an earlier answer is used.
    HasStaleAnswer,
}

/// A name in normal form and a record type.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Question {
    name: Arc<str>,
    kind: Kind,
}

impl Question {
    /// Creates a question about `name`, in any case, with or without trailing dot.
    pub(super) fn new(name: &str, kind: Kind) -> Self {
        Self { name: normal(name).into(), kind }
    }

    /// Returns the memory use in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.name.len()
    }
}

/// Returns the normal form: lower case, no trailing dot; the root is the empty string.
pub(super) fn normal(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

/// The error of a system without usable DNS servers.
#[derive(Debug, thiserror::Error)]
#[error("the system's DNS servers cannot be used: {why}; set `dns.servers`, such as [\"127.0.0.1:53\"]")]
pub struct UnusableDns {
    why: String,
}

/// Sends queries to the servers, with limits on their number and time.
///
/// hickory's pool would accept the first SERVFAIL of any server as the answer. So each hickory resolver has one server,
/// and this type tries the next one.
pub(super) struct QueryClient {
    servers: Vec<TokioResolver>,
    /// Index of the server that answered last. It is asked first, so a dead server costs its timeout once.
    preferred: AtomicUsize,
    validation: Option<Validation>,
    places: QueryPlaces,
    try_timeout: Duration,
}

impl QueryClient {
    pub(super) fn new(settings: &DnsSettings) -> Result<Self, UnusableDns> {
        let unusable = |why: NetError| UnusableDns { why: why.to_string() };
        let named = if settings.servers.is_empty() {
            // The error type differs on other systems.
            let system = read_system_conf().map_err(|why| UnusableDns { why: why.to_string() });
            match system.map(|(config, _)| config.name_servers) {
                Ok(named) => named,
                Err(_) if settings.may_lack_servers => Vec::new(),
                Err(error) => return Err(error),
            }
        } else {
            settings.servers.iter().copied().map(name_server).collect()
        };
        if named.is_empty() && !settings.may_lack_servers {
            return Err(UnusableDns { why: "/etc/resolv.conf contains none".to_owned() });
        }
        let plain = |server: &NameServerConfig| resolver(server.clone(), settings.try_timeout, None);
        let servers: Result<Vec<_>, _> = named.iter().map(plain).collect();
        let anchors = settings.trust_anchors.clone();
        Ok(Self {
            servers: servers.map_err(unusable)?,
            preferred: AtomicUsize::new(0),
            validation: anchors.map(|anchors| Validation::new(anchors, named, settings.try_timeout)),
            places: QueryPlaces::new(PROMPT_MAX, SLOW_MAX, settings.try_timeout * 2 / 5),
            try_timeout: settings.try_timeout,
        })
    }

    /// Sends the query.
    pub(super) async fn ask(&self, question: &Question, requester: Requester, patience: SlotWait) -> TimedResult {
        let Ok(mut name) = Name::from_ascii(&*question.name) else {
            // A name that does not fit into a query can't exist.
            return TimedResult { result: LookupResult::insecure(Answer::NoName), ttl: NEGATIVE_TTL_MAX };
        };
        // There are no search domains: the names are fully qualified.
        name.set_fqdn(true);
        let tries = self.servers.len().clamp(TRIES_MIN, TRIES_MAX);
        let max_wait = match patience {
            // The wait for a slot is limited to the time of the tries themselves.
            SlotWait::WaitsForPlace => self.try_timeout * u32::try_from(tries).unwrap_or(1),
            SlotWait::HasStaleAnswer => Duration::ZERO,
        };
        let asked = self.places.ask(requester, max_wait, self.ask_in_turn(&name, question.kind, tries)).await;
        asked.unwrap_or_else(|NoQuerySlot| TimedResult::unasked())
    }

    async fn ask_in_turn(&self, name: &Name, kind: Kind, tries: usize) -> TimedResult {
        let first = self.preferred.load(Ordering::Relaxed);
        let mut last = TimedResult::failed("no DNS server is known; set dns.servers");
        if self.servers.is_empty() {
            return last;
        }
        for turn in 0..tries {
            let place = (first + turn) % self.servers.len();
            last = self.ask_one(place, name, kind).await;
            if !last.is_failed() {
                self.preferred.store(place, Ordering::Relaxed);
                break;
            }
        }
        last
    }

    async fn ask_one(&self, place: usize, name: &Name, kind: Kind) -> TimedResult {
        let plain = &self.servers[place];
        let Some(validation) = self.validation.as_ref().filter(|validation| validation.covers(name)) else {
            return match timeout(self.try_timeout, plain.lookup(name.clone(), kind.record_type())).await {
                Ok(Ok(lookup)) => read(&lookup, name, kind, Trust::Insecure),
                Ok(Err(why)) => explain(&why, |_| Trust::Insecure),
                Err(_) => TimedResult::failed("request timed out"),
            };
        };
        let resolvers = match validation.resolvers(plain).await {
            Ok(resolvers) => resolvers,
            Err(why) => return TimedResult::failed(why),
        };
        let asked = resolvers[place].lookup(name.clone(), kind.record_type());
        match timeout(self.try_timeout * QUESTIONS, asked).await {
            Ok(Ok(lookup)) => match trust_of(lookup.answers().iter()) {
                Some(trust) => read(&lookup, name, kind, trust),
                None => TimedResult::failed("the answer does not match its zone's signature"),
            },
            Ok(Err(why)) => explain(&why, |none| worth_of_nothing(name, none)),
            Err(_) => TimedResult::failed("request timed out"),
        }
    }
}

/// Creates a resolver that uses `server` alone and validates with `anchors`, if any.
pub(super) fn resolver(
    server: NameServerConfig,
    try_timeout: Duration,
    anchors: Option<Arc<TrustAnchors>>,
) -> Result<TokioResolver, NetError> {
    let config = ResolverConfig::from_name_servers(vec![server]);
    let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
    *builder.options_mut() = options(try_timeout);
    if let Some(anchors) = anchors {
        builder = builder.with_trust_anchor(anchors);
    }
    builder.build()
}

fn name_server(server: SocketAddr) -> NameServerConfig {
    let at_port = |mut connection: ConnectionConfig| {
        connection.port = server.port();
        connection
    };
    let connections = vec![at_port(ConnectionConfig::udp()), at_port(ConnectionConfig::tcp())];
    NameServerConfig::new(server.ip(), true, connections)
}

fn options(try_timeout: Duration) -> ResolverOpts {
    let mut options = ResolverOpts::default();
    options.timeout = try_timeout;
    // This module retries instead.
    options.attempts = 0;
    options.max_active_requests = OVER_TCP_MAX;
    options.cache_size = 0;
    // Only DNS decides where mail and webhooks go (contract 8: `dns.servers` apply to every lookup).
    options.use_hosts_file = ResolveHosts::Never;
    options
}

fn read(lookup: &Lookup, name: &Name, kind: Kind, trust: Trust) -> TimedResult {
    let wanted = || lookup.answers().iter().filter(|record| record.record_type() == kind.record_type());
    let mut facts: Vec<RecordData> = wanted().filter_map(|record| RecordData::read(&record.data)).collect();
    if let (Kind::A | Kind::Aaaa, Some(first)) = (kind, wanted().next())
        && first.name != *name
    {
        facts.push(RecordData::Alias(normal(&first.name.to_ascii())));
    }
    if kind == Kind::Mx {
        keep_best(&mut facts);
    }
    // The answer includes the aliases on the way: the shortest TTL of the chain counts.
    let shortest = lookup.answers().iter().map(|record| believable(record.ttl)).min().unwrap_or_default();
    let ttl = shortest.clamp(TTL_MIN, TTL_MAX);
    let answer = if facts.is_empty() { Answer::NoData } else { Answer::Found(facts.into()) };
    TimedResult { result: LookupResult { answer, trust }, ttl }
}

/// Keeps the best exchanges. Among those with equal preference the choice is stable, so that a domain's site stays the
/// same.
fn keep_best(facts: &mut Vec<RecordData>) {
    let rank = |fact: &RecordData| match fact {
        RecordData::Exchange { preference, name } => (*preference, name.clone()),
        RecordData::Address(_) | RecordData::Text(_) | RecordData::Alias(_) | RecordData::Tlsa(_) => {
            (u16::MAX, String::new())
        }
    };
    facts.sort_by_cached_key(rank);
    facts.dedup();
    facts.truncate(EXCHANGES_MAX);
}

/// RFC 2181 8: a TTL with the highest bit set counts as 0.
fn believable(ttl: u32) -> Duration {
    Duration::from_secs(if ttl > i32::MAX.unsigned_abs() { 0 } else { u64::from(ttl) })
}

fn explain(why: &NetError, worth: impl Fn(&NoRecords) -> Trust) -> TimedResult {
    match why {
        NetError::Dns(DnsError::NoRecordsFound(none)) => {
            nothing(none.response_code, negative_ttl(none), worth(none)).unwrap_or_else(|| TimedResult::failed(why))
        }
        // Below an unsigned delegation, NSEC proofs are not required.
        NetError::Dns(DnsError::Nsec { response, proof: Proof::Insecure, .. }) if response.answers.is_empty() => {
            nothing(response.response_code, None, Trust::Insecure).unwrap_or_else(|| TimedResult::failed(why))
        }
        _ => TimedResult::failed(why),
    }
}

/// Returns a negative answer if `code` is one. Without a SOA it must not be cached (RFC 2308 5).
fn nothing(code: ResponseCode, ttl: Option<u32>, trust: Trust) -> Option<TimedResult> {
    let answer = match code {
        ResponseCode::NoError => Answer::NoData,
        ResponseCode::NXDomain => Answer::NoName,
        _ => return None,
    };
    let ttl = ttl.map_or(TTL_MIN, believable).clamp(TTL_MIN, NEGATIVE_TTL_MAX);
    Some(TimedResult { result: LookupResult { answer, trust }, ttl })
}

/// Returns the negative TTL of RFC 2308 5. Validating resolvers leave it out.
fn negative_ttl(none: &NoRecords) -> Option<u32> {
    none.negative_ttl.or_else(|| none.soa.as_ref().map(|soa| soa.ttl.min(soa.data.minimum)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_thousands_of_exchanges_the_same_best_twenty_are_kept() {
        let exchange = |n: u16| RecordData::Exchange { preference: n / 50, name: format!("mx{n}.example") };
        let (mut up, mut down): (Vec<_>, Vec<_>) =
            ((0..3000).map(exchange).collect(), (0..3000).rev().map(exchange).collect());
        keep_best(&mut up);
        keep_best(&mut down);
        assert_eq!((up.len(), &up), (20, &down));
        assert!(up.iter().all(|fact| matches!(fact, RecordData::Exchange { preference: 0, .. })));
    }
}
