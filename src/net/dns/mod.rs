//! DNS: implements the port [`Resolve`] with hickory-resolver and a cache of our own.
//!
//! Created once at start. Lookups are limited in time and number. Answers are cached by TTL on the program's own clock,
//! so that the virtual clock moves it too; concurrent lookups of one name share one query. `mail_hosts` implements RFC
//! 5321 5.1 and the additions of contract 6. With a trust anchor, answers that fail validation are discarded. Addresses
//! for mail pass the [`Guard`] here; [`HostAddresses`] returns them unchecked.

mod anchor;
mod answer;
mod cache;
#[cfg(test)]
mod dnssec_tests;
mod fact;
mod query;
mod route;
#[cfg(test)]
mod signed;
#[cfg(test)]
mod tests;
mod validation;
#[cfg(test)]
pub(super) mod zone;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::base::entropy::Entropy;
use crate::domain::hostname::DomainName;
use crate::engine::ports::{BoxFuture, Clock, Family, LookupFailure, MailHost, Requester, Resolve, RouteFailure};
use crate::engine::probe::reverse_name;
use crate::net::network_guard::Guard;
use crate::net::probe::dns::{DnsProbe, ProbeType, ServerError};
use crate::smtp::tlsa::TlsaRecord;

use self::answer::{Answer, LookupResult, Unknown};
use self::cache::Cache;
use self::fact::RecordData;
use self::query::{Kind, QueryClient, Question, SlotWait};
use self::validation::Trust;

pub use self::anchor::{Anchors, InvalidAnchor};
pub use self::query::UnusableDns;

/// Name servers and timeouts.
#[derive(Debug, Clone)]
pub struct DnsSettings {
    /// The servers, in any order. Empty means the servers of the system (`/etc/resolv.conf`).
    pub servers: Vec<SocketAddr>,
    /// Whether to start even if the system names no servers; then every lookup fails. Allows `dev` to start offline.
    pub may_lack_servers: bool,
    /// Time limit of one try. There are two tries, or three with three or more servers.
    pub try_timeout: Duration,
    /// Trust anchors of DNSSEC validation. Without anchors nothing is validated and no answer is secure.
    pub trust_anchors: Option<Anchors>,
}

impl Default for DnsSettings {
    fn default() -> Self {
        Self { servers: Vec::new(), may_lack_servers: false, try_timeout: Duration::from_secs(5), trust_anchors: None }
    }
}

/// Additional time for the IPv6 addresses of a host after its IPv4 addresses have arrived.
const GRACE: Duration = Duration::from_secs(1);

/// Maximum number of names used of one address.
const POINTERS_MAX: usize = 20;

/// Our own host names and addresses. Mail whose best server is one of these would loop (5.4.6).
#[derive(Debug, Clone, Default)]
pub struct OwnHosts {
    names: BTreeSet<String>,
    addresses: BTreeSet<IpAddr>,
}

impl OwnHosts {
    /// Creates the set from our names (in any case, with or without trailing dot) and the addresses that we listen at.
    pub fn new(names: impl IntoIterator<Item = String>, addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        Self {
            names: names.into_iter().map(|name| query::normal(&name)).collect(),
            addresses: addresses.into_iter().map(|address| address.to_canonical()).collect(),
        }
    }

    fn names(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    fn listens_at(&self, address: IpAddr) -> bool {
        self.addresses.contains(&address.to_canonical())
    }
}

/// Resolves host names for callers that connect by name and check the [`Guard`] themselves.
pub trait HostAddresses: Send + Sync {
    /// Returns the addresses of `host`, IPv4 and IPv6 in turn; never empty. They are *not* checked against the guard.
    fn addresses<'a>(
        &'a self,
        host: &'a str,
        requester: Requester,
    ) -> BoxFuture<'a, Result<Vec<IpAddr>, LookupFailure>>;
}

/// The resolver. Cheap to clone; clones share the cache.
#[derive(Clone)]
pub struct Resolver(Arc<Shared>);

struct Shared {
    asker: QueryClient,
    cache: Cache,
    own: OwnHosts,
    guard: Arc<Guard>,
    entropy: Arc<dyn Entropy>,
    /// Sends reverse lookups to the same servers. `None` if there are none.
    direct: Option<DnsProbe>,
}

impl Resolver {
    /// Creates a resolver with an empty cache, whose lifetimes follow `clock.monotonic()`.
    ///
    /// # Errors
    /// No servers are configured and the system names none.
    pub fn new(
        settings: &DnsSettings,
        own: OwnHosts,
        guard: Arc<Guard>,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
    ) -> Result<Self, UnusableDns> {
        let asker = QueryClient::new(settings)?;
        let cache = Cache::new(clock, cache::BYTES_MAX);
        let direct = DnsProbe::new(&settings.servers).ok();
        Ok(Self(Arc::new(Shared { asker, cache, own, guard, entropy, direct })))
    }
}

impl Shared {
    async fn ask(&self, name: &str, kind: Kind, requester: Requester) -> LookupResult {
        let question = Question::new(name, kind);
        self.cache.get(&question, requester, |patience| self.asker.ask(&question, requester, patience)).await
    }

    /// Looks up both families at once. IPv6 may take only little longer than IPv4: some name servers do not answer AAAA
    /// queries, and the IPv4 addresses must not wait for that timeout (RFC 8305 3). An address in place of a name is
    /// returned as it is: some MX records and configurations contain one (against RFC 5321 2.3.5), and its meaning is
    /// clear.
    async fn host(&self, name: &str, requester: Requester) -> HostAnswer {
        if let Some(literal) = HostAnswer::literal(name) {
            return literal;
        }
        let ask = |kind| self.ask(name, kind, requester);
        let (v4, v6) = first_decides(ask(Kind::A), ask(Kind::Aaaa), GRACE).await;
        HostAnswer { v4, v6 }
    }

    /// Looks up both families as [`host`](Self::host) does, past the cache.
    async fn host_now(&self, name: &str) -> HostAnswer {
        if let Some(literal) = HostAnswer::literal(name) {
            return literal;
        }
        let (v4, v6) = first_decides(self.ask_now(name, Kind::A), self.ask_now(name, Kind::Aaaa), GRACE).await;
        HostAnswer { v4, v6 }
    }

    async fn ask_now(&self, name: &str, kind: Kind) -> LookupResult {
        self.asker.ask(&Question::new(name, kind), Requester::CHECKS, SlotWait::WaitsForPlace).await.result
    }

    async fn now(&self, name: &str, kind: Kind) -> Result<Arc<[RecordData]>, LookupFailure> {
        facts(self.ask_now(name, kind).await.answer)
    }
}

/// Awaits both lookups. Once the first has found addresses, the second has `grace`.
async fn first_decides(
    first: impl Future<Output = LookupResult>,
    second: impl Future<Output = LookupResult>,
    grace: Duration,
) -> (LookupResult, LookupResult) {
    let (mut first, mut second) = (pin!(first), pin!(second));
    let mut early = None;
    let found = loop {
        tokio::select! {
            found = &mut first => break found,
            found = &mut second, if early.is_none() => early = Some(found),
        }
    };
    let late = match (early, &found.answer) {
        (Some(early), _) => early,
        (None, Answer::Found(_)) => timeout(grace, second).await.unwrap_or_else(|_| LookupResult::insecure(silent())),
        (None, Answer::NoData | Answer::NoName | Answer::Unknown(_)) => second.await,
    };
    (found, late)
}

fn silent() -> Answer {
    Answer::Unknown(Unknown::Failed("no name server has answered in time".into()))
}

/// Results of the two address lookups of one host.
struct HostAnswer {
    v4: LookupResult,
    v6: LookupResult,
}

impl HostAnswer {
    /// Returns the answer for an address in place of a name.
    fn literal(name: &str) -> Option<Self> {
        let found = Answer::Found([RecordData::Address(name.parse().ok()?)].into());
        Some(Self { v4: LookupResult::insecure(found), v6: LookupResult::insecure(Answer::NoData) })
    }

    /// Returns all addresses, both families in turn.
    fn addresses(&self) -> Result<Vec<IpAddr>, LookupFailure> {
        let (v4, v6) = self.families();
        let addresses = interleave(v4, v6);
        match self.unknown() {
            _ if !addresses.is_empty() => Ok(addresses),
            Some(unknown) => Err(unknown.clone().into()),
            None => Err(LookupFailure::Absent),
        }
    }

    /// Returns the addresses by family, in the order of the DNS answer (RFC 5321 5.1 asks to keep it).
    fn families(&self) -> (Vec<IpAddr>, Vec<IpAddr>) {
        (addresses_in(&self.v4.answer), addresses_in(&self.v6.answer))
    }

    /// Returns the reason why some addresses may be missing. A lookup that was not made comes first, since it can be
    /// repeated.
    fn unknown(&self) -> Option<&Unknown> {
        let both = [&self.v4, &self.v6].into_iter().filter_map(|result| match &result.answer {
            Answer::Unknown(unknown) => Some(unknown),
            Answer::Found(_) | Answer::NoData | Answer::NoName => None,
        });
        both.max_by_key(|unknown| **unknown == Unknown::Unasked)
    }

    /// Returns whether DNSSEC validated every address.
    fn is_secure(&self) -> bool {
        let mut found = [&self.v4, &self.v6].into_iter().filter(|result| matches!(result.answer, Answer::Found(_)));
        found.all(|result| result.trust == Trust::Secure)
    }

    /// Returns the name that holds the addresses, if aliases led there.
    fn alias(&self) -> Option<&str> {
        [&self.v4, &self.v6].into_iter().find_map(|result| match &result.answer {
            Answer::Found(facts) => facts.iter().find_map(RecordData::alias),
            Answer::NoData | Answer::NoName | Answer::Unknown(_) => None,
        })
    }
}

/// Returns the records of an answer, or the reason why there are none.
fn facts(answer: Answer) -> Result<Arc<[RecordData]>, LookupFailure> {
    match answer {
        Answer::Found(facts) => Ok(facts),
        Answer::NoData | Answer::NoName => Err(LookupFailure::Absent),
        Answer::Unknown(unknown) => Err(unknown.into()),
    }
}

fn addresses_in(answer: &Answer) -> Vec<IpAddr> {
    let Answer::Found(facts) = answer else { return Vec::new() };
    facts.iter().filter_map(RecordData::address).collect()
}

/// Merges two lists alternately. IPv4 goes first: many self-hosted servers have no IPv6, or IPv6 without a PTR record,
/// for which large receivers bounce.
fn interleave(first: Vec<IpAddr>, second: Vec<IpAddr>) -> Vec<IpAddr> {
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let mut out = Vec::new();
    loop {
        let pair = [first.next(), second.next()];
        if pair == [None, None] {
            return out;
        }
        out.extend(pair.into_iter().flatten());
    }
}

impl HostAddresses for Resolver {
    fn addresses<'a>(
        &'a self,
        host: &'a str,
        requester: Requester,
    ) -> BoxFuture<'a, Result<Vec<IpAddr>, LookupFailure>> {
        Box::pin(async move { self.0.host(host, requester).await.addresses() })
    }
}

impl Resolve for Resolver {
    fn mail_hosts<'a>(
        &'a self,
        domain: &'a DomainName,
        requester: Requester,
    ) -> BoxFuture<'a, Result<Vec<MailHost>, RouteFailure>> {
        Box::pin(route::mail_hosts(&self.0, domain, requester))
    }

    fn mail_exchanges<'a>(
        &'a self,
        domain: &'a DomainName,
        requester: Requester,
    ) -> BoxFuture<'a, Result<Vec<String>, RouteFailure>> {
        Box::pin(route::exchanges(&self.0, domain, requester))
    }

    fn host_addresses<'a>(&'a self, host: &'a str) -> BoxFuture<'a, Result<Vec<IpAddr>, LookupFailure>> {
        self.addresses(host, Requester::SERVICE)
    }

    fn host_addresses_now<'a>(&'a self, host: &'a str) -> BoxFuture<'a, Result<Vec<IpAddr>, LookupFailure>> {
        Box::pin(async move { self.0.host_now(host).await.addresses() })
    }

    fn family_addresses_now<'a>(
        &'a self,
        host: &'a str,
        family: Family,
    ) -> BoxFuture<'a, Result<Vec<IpAddr>, LookupFailure>> {
        Box::pin(async move {
            let kind = match family {
                Family::V4 => Kind::A,
                Family::V6 => Kind::Aaaa,
            };
            let facts = match host.parse() {
                Ok(literal) => [RecordData::Address(literal)].into(),
                Err(_) => self.0.now(host, kind).await?,
            };
            family.only(facts.iter().filter_map(RecordData::address))
        })
    }

    fn tlsa<'a>(
        &'a self,
        name: &'a str,
        requester: Requester,
    ) -> BoxFuture<'a, Result<Vec<TlsaRecord>, LookupFailure>> {
        Box::pin(async move {
            let found = self.0.ask(name, Kind::Tlsa, requester).await;
            let facts = facts(found.answer)?;
            match found.trust {
                Trust::Secure => Ok(facts.iter().filter_map(RecordData::tlsa).cloned().collect()),
                Trust::Insecure => Err(LookupFailure::Absent),
            }
        })
    }

    fn txt<'a>(&'a self, name: &'a str, requester: Requester) -> BoxFuture<'a, Result<Vec<String>, LookupFailure>> {
        Box::pin(async move {
            let facts = facts(self.0.ask(name, Kind::Txt, requester).await.answer)?;
            Ok(facts.iter().filter_map(RecordData::text).map(str::to_owned).collect())
        })
    }

    fn txt_now<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Vec<String>, LookupFailure>> {
        Box::pin(async move {
            let facts = self.0.now(name, Kind::Txt).await?;
            Ok(facts.iter().filter_map(RecordData::text).map(str::to_owned).collect())
        })
    }

    fn cname_now<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<String, LookupFailure>> {
        Box::pin(async move {
            let facts = self.0.now(name, Kind::Cname).await?;
            facts.iter().find_map(RecordData::alias).map(str::to_owned).ok_or(LookupFailure::Absent)
        })
    }

    fn mx_now<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Vec<String>, LookupFailure>> {
        Box::pin(async move {
            let facts = self.0.now(name, Kind::Mx).await?;
            Ok(facts.iter().filter_map(RecordData::exchange).map(str::to_owned).collect())
        })
    }

    fn ptr_now(&self, address: IpAddr) -> BoxFuture<'_, Result<Vec<String>, LookupFailure>> {
        Box::pin(async move {
            let direct = self.0.direct.as_ref();
            let direct = direct.ok_or_else(|| LookupFailure::Temporary("no DNS server is known".to_owned()))?;
            // hickory would answer `localhost` for every loopback address, without a query (RFC 6761 6.3).
            match direct.ask(&reverse_name(address), ProbeType::Ptr).await {
                Ok(answer) => Ok(answer.records.into_iter().take(POINTERS_MAX).collect()),
                Err(ServerError::Absent) => Err(LookupFailure::Absent),
                Err(ServerError::Failed(why)) => Err(LookupFailure::Temporary(why)),
            }
        })
    }
}
