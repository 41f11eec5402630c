//! One question to the DNS servers, and its answer in our own terms. Only this file, `fact` and those of validation
//! know hickory.
//!
//! hickory's own cache is off: it follows the system's clock, and what was refused or failed would follow other
//! rules than contract 8's.

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
use super::answer::{Answer, Answered, Told};
use super::fact::Fact;
use super::validation::{QUESTIONS, Trust, Validation, worth, worth_of_nothing};
use crate::engine::places::{NoPlace, Places};

/// Questions that are on their way for a short time.
const PROMPT_MAX: usize = 256;
/// Questions that have been on their way for long.
const SLOW_MAX: usize = 1024;
/// Tries of one question: as many as there are servers, but two of a single one, and no more than resolv.conf's three.
const TRIES_MIN: usize = 2;
const TRIES_MAX: usize = 3;
/// Exchanges of a domain that are used.
const EXCHANGES_MAX: usize = 20;
/// TTLs are honoured, but one of 0 would ask again for every message of a burst (contract 8: at least 1 s).
const TTL_MIN: Duration = Duration::from_secs(1);
/// No record is believed for longer than a week (RFC 8767 4).
const TTL_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// "There is none" is believed for at most so long, whatever the zone's SOA says.
const NEGATIVE_TTL_MAX: Duration = Duration::from_secs(300);

/// Kind of record to ask for.
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
    /// The alias at the name itself.
    Cname,
    /// Certificates of a server (RFC 6698).
    Tlsa,
    /// The names of an address.
    Ptr,
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
            Self::Ptr => RecordType::PTR,
        }
    }
}

/// A name in normal form, and what is asked about it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Question {
    name: Arc<str>,
    kind: Kind,
}

impl Question {
    /// About `name`, in any case, with or without trailing dot.
    pub(super) fn new(name: &str, kind: Kind) -> Self {
        Self { name: normal(name).into(), kind }
    }

    /// The memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.name.len()
    }
}

/// Lower case, no trailing dot; the root is the empty text.
pub(super) fn normal(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

/// There are no DNS servers to ask.
#[derive(Debug, thiserror::Error)]
#[error("the system's DNS servers cannot be used: {why}; name servers in `dns.servers`, such as [\"127.0.0.1:53\"]")]
pub struct UnusableDns {
    why: String,
}

/// Asks the servers, a bounded number of questions at once and each for a bounded time.
///
/// hickory's own pool takes the first SERVFAIL of any server for the answer; so it is given one server each, and the
/// next one is asked here.
pub(super) struct Asker {
    servers: Vec<TokioResolver>,
    /// The server that answered last, which is asked first: one that is down costs its time-out once.
    preferred: AtomicUsize,
    validation: Option<Validation>,
    places: Places,
    try_timeout: Duration,
}

impl Asker {
    pub(super) fn new(settings: &DnsSettings) -> Result<Self, UnusableDns> {
        let unusable = |why: NetError| UnusableDns { why: why.to_string() };
        let named = if settings.servers.is_empty() {
            // Its error is of another type on other systems.
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
            return Err(UnusableDns { why: "/etc/resolv.conf has none".to_owned() });
        }
        let plain = |server: &NameServerConfig| resolver(server.clone(), settings.try_timeout, None);
        let servers: Result<Vec<_>, _> = named.iter().map(plain).collect();
        let anchors = settings.trust_anchors.clone();
        Ok(Self {
            servers: servers.map_err(unusable)?,
            preferred: AtomicUsize::new(0),
            validation: anchors.map(|anchors| Validation::new(anchors, named, settings.try_timeout)),
            places: Places::new(PROMPT_MAX, SLOW_MAX, settings.try_timeout * 2 / 5),
            try_timeout: settings.try_timeout,
        })
    }

    /// Asks the servers now.
    pub(super) async fn ask(&self, question: &Question) -> Answered {
        let Ok(mut name) = Name::from_ascii(&*question.name) else {
            // A name that cannot be written in a query cannot exist either.
            return Answered { told: Told::insecure(Answer::NoName), ttl: NEGATIVE_TTL_MAX };
        };
        // No search domains: names from outside are whole.
        name.set_fqdn(true);
        let tries = self.servers.len().clamp(TRIES_MIN, TRIES_MAX);
        // Waiting for a place may take as long as the tries themselves, and no longer.
        let patience = self.try_timeout * u32::try_from(tries).unwrap_or(1);
        let asked = self.places.ask(patience, self.ask_in_turn(&name, question.kind, tries)).await;
        asked.unwrap_or_else(|NoPlace| Answered::unasked())
    }

    async fn ask_in_turn(&self, name: &Name, kind: Kind, tries: usize) -> Answered {
        let first = self.preferred.load(Ordering::Relaxed);
        let mut last = Answered::failed("no DNS server is known; set dns.servers");
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

    async fn ask_one(&self, place: usize, name: &Name, kind: Kind) -> Answered {
        let plain = &self.servers[place];
        let Some(validation) = self.validation.as_ref().filter(|validation| validation.covers(name)) else {
            return match timeout(self.try_timeout, plain.lookup(name.clone(), kind.record_type())).await {
                Ok(Ok(lookup)) => read(&lookup, name, kind, Trust::Insecure),
                Ok(Err(why)) => explain(&why, |_| Trust::Insecure),
                Err(_) => Answered::failed("request timed out"),
            };
        };
        let resolvers = match validation.resolvers(plain).await {
            Ok(resolvers) => resolvers,
            Err(why) => return Answered::failed(why),
        };
        let asked = resolvers[place].lookup(name.clone(), kind.record_type());
        match timeout(self.try_timeout * QUESTIONS, asked).await {
            Ok(Ok(lookup)) => match worth(lookup.answers().iter()) {
                Some(trust) => read(&lookup, name, kind, trust),
                None => Answered::failed("the answer does not match its zone's signature"),
            },
            Ok(Err(why)) => explain(&why, |none| worth_of_nothing(name, none)),
            Err(_) => Answered::failed("request timed out"),
        }
    }
}

/// A resolver that asks `server` alone, validating from `anchors` where there are some.
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
    // Tries after the first, which are ours.
    options.attempts = 0;
    options.max_active_requests = PROMPT_MAX + SLOW_MAX;
    options.cache_size = 0;
    // Only DNS decides where mail and webhooks go: contract 8, `dns.servers` serve every look-up.
    options.use_hosts_file = ResolveHosts::Never;
    options
}

fn read(lookup: &Lookup, name: &Name, kind: Kind, trust: Trust) -> Answered {
    let wanted = || lookup.answers().iter().filter(|record| record.record_type() == kind.record_type());
    let mut facts: Vec<Fact> = wanted().filter_map(|record| Fact::read(&record.data)).collect();
    if let (Kind::A | Kind::Aaaa, Some(first)) = (kind, wanted().next())
        && first.name != *name
    {
        facts.push(Fact::Alias(normal(&first.name.to_ascii())));
    }
    if kind == Kind::Mx {
        keep_best(&mut facts);
    }
    // Aliases on the way are among the answers: the shortest-lived link decides.
    let shortest = lookup.answers().iter().map(|record| believable(record.ttl)).min().unwrap_or_default();
    let ttl = shortest.clamp(TTL_MIN, TTL_MAX);
    let answer = if facts.is_empty() { Answer::NoData } else { Answer::Found(facts.into()) };
    Answered { told: Told { answer, trust }, ttl }
}

/// Keeps the best exchanges, always the same of those with one preference, so that a domain's site stays the same.
fn keep_best(facts: &mut Vec<Fact>) {
    let rank = |fact: &Fact| match fact {
        Fact::Exchange { preference, name } => (*preference, name.clone()),
        Fact::Address(_) | Fact::Text(_) | Fact::Alias(_) | Fact::Tlsa(_) | Fact::Pointer(_) => {
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

fn explain(why: &NetError, worth: impl Fn(&NoRecords) -> Trust) -> Answered {
    match why {
        NetError::Dns(DnsError::NoRecordsFound(none)) => {
            nothing(none.response_code, negative_ttl(none), worth(none)).unwrap_or_else(|| Answered::failed(why))
        }
        // Nobody could say whether the zone is signed as it should be, and need not: it has left DNSSEC's paths.
        NetError::Dns(DnsError::Nsec { response, proof: Proof::Insecure, .. }) if response.answers.is_empty() => {
            nothing(response.response_code, None, Trust::Insecure).unwrap_or_else(|| Answered::failed(why))
        }
        _ => Answered::failed(why),
    }
}

/// "There is none", if that is what `code` says. Without a SOA it is not to be kept (RFC 2308 5).
fn nothing(code: ResponseCode, ttl: Option<u32>, trust: Trust) -> Option<Answered> {
    let answer = match code {
        ResponseCode::NoError => Answer::NoData,
        ResponseCode::NXDomain => Answer::NoName,
        _ => return None,
    };
    let ttl = ttl.map_or(TTL_MIN, believable).clamp(TTL_MIN, NEGATIVE_TTL_MAX);
    Some(Answered { told: Told { answer, trust }, ttl })
}

/// As RFC 2308 5 has it; validating resolvers leave it out.
fn negative_ttl(none: &NoRecords) -> Option<u32> {
    none.negative_ttl.or_else(|| none.soa.as_ref().map(|soa| soa.ttl.min(soa.data.minimum)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_thousands_of_exchanges_the_same_best_twenty_are_kept() {
        let exchange = |n: u16| Fact::Exchange { preference: n / 50, name: format!("mx{n}.example") };
        let (mut up, mut down): (Vec<_>, Vec<_>) =
            ((0..3000).map(exchange).collect(), (0..3000).rev().map(exchange).collect());
        keep_best(&mut up);
        keep_best(&mut down);
        assert_eq!((up.len(), &up), (20, &down));
        assert!(up.iter().all(|fact| matches!(fact, Fact::Exchange { preference: 0, .. })));
    }
}
