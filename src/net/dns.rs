//! Names: the port [`Resolve`] over hickory-resolver, with a cache of our own.
//!
//! Made once at start. Every look-up is bounded in time and in number, cached by its TTL on the program's own clock
//! (so that the virtual one moves it too), and asked once however many wait for it. `mail_hosts` is RFC 5321 5.1 with
//! what contract 6 adds. With a trust anchor, what is not as its zone has signed it is no answer.
//! Addresses for mail pass the [`Guard`] here; [`HostAddresses`] gives them unjudged.

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
mod zone;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::base::entropy::Entropy;
use crate::domain::hostname::DomainName;
use crate::engine::ports::{BoxFuture, Clock, LookupFailure, MailHost, Resolve, RouteFailure};
use crate::net::guard::Guard;
use crate::smtp::tlsa::TlsaRecord;

use self::answer::{Answer, Told, Unknown};
use self::cache::Cache;
use self::fact::Fact;
use self::query::{Asker, Kind, Question};
use self::validation::Trust;

pub use self::anchor::{Anchors, InvalidAnchor};
pub use self::query::UnusableDns;

/// Whom to ask, and how long to wait.
#[derive(Debug, Clone)]
pub struct DnsSettings {
    /// The servers, in any order; empty means those of the system (`/etc/resolv.conf`).
    pub servers: Vec<SocketAddr>,
    /// Whether it is no fault that the system names no servers: every look-up fails then. So `dev` starts offline.
    pub may_lack_servers: bool,
    /// Time limit of one try. There are two tries, or three with three servers or more.
    pub try_timeout: Duration,
    /// Where validation starts. Without anchors nothing is validated, and nothing is secure.
    pub trust_anchors: Option<Anchors>,
}

impl Default for DnsSettings {
    fn default() -> Self {
        Self { servers: Vec::new(), may_lack_servers: false, try_timeout: Duration::from_secs(5), trust_anchors: None }
    }
}

/// For how long after the IPv4 addresses of a host its IPv6 addresses are waited for.
const GRACE: Duration = Duration::from_secs(1);

/// Names of one address that are used.
const POINTERS_MAX: usize = 20;

/// Our own host names and addresses. Mail whose best server is one of these would loop (5.4.6).
#[derive(Debug, Clone, Default)]
pub struct OwnHosts {
    names: BTreeSet<String>,
    addresses: BTreeSet<IpAddr>,
}

impl OwnHosts {
    /// Our names, in any case and with or without trailing dot, and the addresses that we listen at.
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

/// The addresses of a host, for whoever connects by name and asks the [`Guard`] itself.
pub trait HostAddresses: Send + Sync {
    /// The addresses of `host`, IPv4 and IPv6 in turn; never empty. They are *not* checked against the guard.
    fn addresses<'a>(&'a self, host: &'a str) -> BoxFuture<'a, Result<Vec<IpAddr>, LookupFailure>>;
}

/// The resolver. Cheap to clone; clones share the cache.
#[derive(Clone)]
pub struct Resolver(Arc<Shared>);

struct Shared {
    asker: Asker,
    cache: Cache,
    own: OwnHosts,
    guard: Arc<Guard>,
    entropy: Arc<dyn Entropy>,
}

impl Resolver {
    /// A resolver with an empty cache, whose lifetimes follow `clock.monotonic()`.
    ///
    /// # Errors
    /// Where no servers are configured and the system names none.
    pub fn new(
        settings: &DnsSettings,
        own: OwnHosts,
        guard: Arc<Guard>,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
    ) -> Result<Self, UnusableDns> {
        let asker = Asker::new(settings)?;
        let cache = Cache::new(clock, cache::BYTES_MAX);
        Ok(Self(Arc::new(Shared { asker, cache, own, guard, entropy })))
    }
}

impl Shared {
    async fn ask(&self, name: &str, kind: Kind) -> Told {
        let question = Question::new(name, kind);
        self.cache.get(&question, || self.asker.ask(&question)).await
    }

    /// Both families at once, IPv6 for not much longer than IPv4 takes: there are name servers that keep silent about
    /// the one, and nobody waits for their time-out with the other in hand (RFC 8305 3). An address in place of a name
    /// is its own answer: some MX records and configurations have one (against RFC 5321 2.3.5), and it is clear what
    /// they mean.
    async fn host(&self, name: &str) -> HostAnswer {
        if let Ok(literal) = name.parse::<IpAddr>() {
            let found = Answer::Found([Fact::Address(literal)].into());
            return HostAnswer { v4: Told::insecure(found), v6: Told::insecure(Answer::NoData) };
        }
        let (v4, v6) = first_decides(self.ask(name, Kind::A), self.ask(name, Kind::Aaaa), GRACE).await;
        HostAnswer { v4, v6 }
    }

    async fn now(&self, name: &str, kind: Kind) -> Result<Arc<[Fact]>, LookupFailure> {
        facts(self.asker.ask(&Question::new(name, kind)).await.told.answer)
    }
}

/// The name at which an address's PTR record stands (RFC 1035 3.5, RFC 3596 2.5).
pub fn reverse_name(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            let [a, b, c, d] = v4.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        IpAddr::V6(v6) => {
            let nibbles = v6.octets().into_iter().rev().flat_map(|byte| [byte & 15, byte >> 4]);
            let nibbles: Vec<_> = nibbles.map(|nibble| format!("{nibble:x}")).collect();
            format!("{}.ip6.arpa", nibbles.join("."))
        }
    }
}

/// Awaits both look-ups; once the first has found something, the second has `grace`.
async fn first_decides(
    first: impl Future<Output = Told>,
    second: impl Future<Output = Told>,
    grace: Duration,
) -> (Told, Told) {
    let (mut first, mut second) = (pin!(first), pin!(second));
    let mut early = None;
    let told = loop {
        tokio::select! {
            told = &mut first => break told,
            told = &mut second, if early.is_none() => early = Some(told),
        }
    };
    let late = match (early, &told.answer) {
        (Some(early), _) => early,
        (None, Answer::Found(_)) => timeout(grace, second).await.unwrap_or_else(|_| Told::insecure(silent())),
        (None, Answer::NoData | Answer::NoName | Answer::Unknown(_)) => second.await,
    };
    (told, late)
}

fn silent() -> Answer {
    Answer::Unknown(Unknown::Failed("no name server has answered in time".into()))
}

/// Results of the two address look-ups of one host.
struct HostAnswer {
    v4: Told,
    v6: Told,
}

impl HostAnswer {
    /// The addresses by family, in the order that DNS gave them (RFC 5321 5.1 asks to keep it).
    fn families(&self) -> (Vec<IpAddr>, Vec<IpAddr>) {
        (addresses_in(&self.v4.answer), addresses_in(&self.v6.answer))
    }

    /// Why it may be that not all addresses are known; what was not asked comes first, for it is asked again.
    fn unknown(&self) -> Option<&Unknown> {
        let both = [&self.v4, &self.v6].into_iter().filter_map(|told| match &told.answer {
            Answer::Unknown(unknown) => Some(unknown),
            Answer::Found(_) | Answer::NoData | Answer::NoName => None,
        });
        both.max_by_key(|unknown| **unknown == Unknown::Unasked)
    }

    /// Whether DNSSEC vouches for every address.
    fn is_secure(&self) -> bool {
        let mut found = [&self.v4, &self.v6].into_iter().filter(|told| matches!(told.answer, Answer::Found(_)));
        found.all(|told| told.trust == Trust::Secure)
    }

    /// The name that the addresses stand at, where aliases led there.
    fn alias(&self) -> Option<&str> {
        [&self.v4, &self.v6].into_iter().find_map(|told| match &told.answer {
            Answer::Found(facts) => facts.iter().find_map(Fact::alias),
            Answer::NoData | Answer::NoName | Answer::Unknown(_) => None,
        })
    }
}

/// The records of an answer, or why there are none.
fn facts(answer: Answer) -> Result<Arc<[Fact]>, LookupFailure> {
    match answer {
        Answer::Found(facts) => Ok(facts),
        Answer::NoData | Answer::NoName => Err(LookupFailure::Absent),
        Answer::Unknown(unknown) => Err(unknown.into()),
    }
}

fn addresses_in(answer: &Answer) -> Vec<IpAddr> {
    let Answer::Found(facts) = answer else { return Vec::new() };
    facts.iter().filter_map(Fact::address).collect()
}

/// One of `first`, one of `second`, and so on. IPv4 goes first: among servers that run by themselves, many have no
/// IPv6 at all, and many more no reverse name for it, for which large receivers bounce.
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
    fn addresses<'a>(&'a self, host: &'a str) -> BoxFuture<'a, Result<Vec<IpAddr>, LookupFailure>> {
        Box::pin(async move {
            let answer = self.0.host(host).await;
            let (v4, v6) = answer.families();
            let addresses = interleave(v4, v6);
            match answer.unknown() {
                _ if !addresses.is_empty() => Ok(addresses),
                Some(unknown) => Err(unknown.clone().into()),
                None => Err(LookupFailure::Absent),
            }
        })
    }
}

impl Resolve for Resolver {
    fn mail_hosts<'a>(&'a self, domain: &'a DomainName) -> BoxFuture<'a, Result<Vec<MailHost>, RouteFailure>> {
        Box::pin(route::mail_hosts(&self.0, domain))
    }

    fn mail_exchanges<'a>(&'a self, domain: &'a DomainName) -> BoxFuture<'a, Result<Vec<String>, RouteFailure>> {
        Box::pin(route::exchanges(&self.0, domain))
    }

    fn host_addresses<'a>(&'a self, host: &'a str) -> BoxFuture<'a, Result<Vec<IpAddr>, LookupFailure>> {
        self.addresses(host)
    }

    fn tlsa<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Vec<TlsaRecord>, LookupFailure>> {
        Box::pin(async move {
            let told = self.0.ask(name, Kind::Tlsa).await;
            let facts = facts(told.answer)?;
            match told.trust {
                Trust::Secure => Ok(facts.iter().filter_map(Fact::tlsa).cloned().collect()),
                Trust::Insecure => Err(LookupFailure::Absent),
            }
        })
    }

    fn txt<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Vec<String>, LookupFailure>> {
        Box::pin(async move {
            let facts = facts(self.0.ask(name, Kind::Txt).await.answer)?;
            Ok(facts.iter().filter_map(Fact::text).map(str::to_owned).collect())
        })
    }

    fn txt_now<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Vec<String>, LookupFailure>> {
        Box::pin(async move {
            let facts = self.0.now(name, Kind::Txt).await?;
            Ok(facts.iter().filter_map(Fact::text).map(str::to_owned).collect())
        })
    }

    fn cname_now<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<String, LookupFailure>> {
        Box::pin(async move {
            let facts = self.0.now(name, Kind::Cname).await?;
            facts.iter().find_map(Fact::alias).map(str::to_owned).ok_or(LookupFailure::Absent)
        })
    }

    fn mx_now<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Vec<String>, LookupFailure>> {
        Box::pin(async move {
            let facts = self.0.now(name, Kind::Mx).await?;
            Ok(facts.iter().filter_map(Fact::exchange).map(str::to_owned).collect())
        })
    }

    fn ptr_now(&self, address: IpAddr) -> BoxFuture<'_, Result<Vec<String>, LookupFailure>> {
        Box::pin(async move {
            let facts = self.0.now(&reverse_name(address), Kind::Ptr).await?;
            Ok(facts.iter().filter_map(Fact::pointer).take(POINTERS_MAX).map(str::to_owned).collect())
        })
    }
}
