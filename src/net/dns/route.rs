//! The mail servers of a domain: RFC 5321 5.1, null MX (RFC 7505), the guard, and the loop check of contract 6.
//!
//! A failed lookup never counts as "no such record": an answer is permanent only if all of it is authoritative.

use std::net::IpAddr;
use std::sync::Arc;

use tokio::task::JoinSet;

use crate::base::entropy::{self, Entropy};
use crate::domain::hostname::DomainName;
use crate::engine::ports::{MAIL_HOSTS_MAX, MailHost, Requester, RouteFailure};

use super::answer::{Answer, Unknown};
use super::fact::RecordData;
use super::query::Kind;
use super::validation::Trust;
use super::{HostAnswer, Shared, interleave};

/// Number of servers looked up together.
const ROUND: usize = 5;
/// Maximum number of addresses of one family of one server.
const FAMILY_MAX: usize = 2;

/// One MX record, or the domain itself if it has none.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Exchange {
    preference: u16,
    name: String,
    /// Whether DNSSEC validated the record or its absence.
    trust: Trust,
}

/// Result of the lookup of one server.
enum HostLookup {
    Host(MailHost),
    /// The server is this service.
    Own,
    /// The guard refuses all its addresses.
    Blocked,
    /// The server certainly has no address.
    Nothing,
    Unknown(Unknown),
}

/// Returns the mail servers of `domain`, in the order to try.
pub(super) async fn mail_hosts(
    shared: &Arc<Shared>,
    domain: &DomainName,
    requester: Requester,
) -> Result<Vec<MailHost>, RouteFailure> {
    let found = shared.ask(domain.as_str(), Kind::Mx, requester).await;
    let exchanges = match found.answer {
        Answer::Found(facts) => ordered(&facts, found.trust, &*shared.entropy)?,
        Answer::NoData => vec![Exchange { preference: 0, name: domain.as_str().to_owned(), trust: found.trust }],
        Answer::NoName => return Err(RouteFailure::NoSuchDomain),
        Answer::Unknown(unknown) => return Err(unknown.into()),
    };
    let own = exchanges.iter().filter(|exchange| shared.own.names(&exchange.name)).map(|own| own.preference).min();
    let exchanges = before(exchanges, own);
    let mut tally = HostLookups { looped: own.is_some(), ..HostLookups::default() };
    for round in exchanges[..exchanges.len().min(MAIL_HOSTS_MAX)].chunks(ROUND) {
        let found = look_up(shared, round, requester).await;
        let ended = tally.take(round, found);
        // Name servers that don't answer must not delay the servers that were found.
        if ended || !tally.hosts.is_empty() && tally.unknown.is_some() {
            return tally.verdict();
        }
    }
    // Servers beyond the limit were not looked up, so the answer is not final.
    if exchanges.len() > MAIL_HOSTS_MAX && tally.unknown.is_none() {
        tally.unknown = Some(Unknown::Failed("too many mail servers without an address".into()));
    }
    tally.verdict()
}

/// Returns the names of all mail servers of `domain`, sorted.
pub(super) async fn exchanges(
    shared: &Arc<Shared>,
    domain: &DomainName,
    requester: Requester,
) -> Result<Vec<String>, RouteFailure> {
    let found = shared.ask(domain.as_str(), Kind::Mx, requester).await;
    let exchanges = match found.answer {
        Answer::Found(facts) => ordered(&facts, found.trust, &*shared.entropy)?,
        Answer::NoData => return Ok(vec![domain.as_str().to_owned()]),
        Answer::NoName => return Err(RouteFailure::NoSuchDomain),
        Answer::Unknown(unknown) => return Err(unknown.into()),
    };
    let mut names: Vec<_> = exchanges.into_iter().map(|exchange| exchange.name).collect();
    names.sort();
    Ok(names)
}

/// Orders the MX records by preference, at random within one preference. A "." means "no mail" only if it is the only
/// record (RFC 7505 3).
fn ordered(facts: &[RecordData], trust: Trust, entropy: &dyn Entropy) -> Result<Vec<Exchange>, RouteFailure> {
    let mut exchanges: Vec<Exchange> = facts
        .iter()
        .filter_map(|fact| match fact {
            RecordData::Exchange { preference, name } if !name.is_empty() => {
                Some(Exchange { preference: *preference, name: name.clone(), trust })
            }
            RecordData::Exchange { .. }
            | RecordData::Address(_)
            | RecordData::Text(_)
            | RecordData::Alias(_)
            | RecordData::Tlsa(_) => None,
        })
        .collect();
    if exchanges.is_empty() {
        return Err(RouteFailure::NullMx);
    }
    // A server named twice counts once, with its better preference.
    exchanges.sort_by(|a, b| (&a.name, a.preference).cmp(&(&b.name, b.preference)));
    exchanges.dedup_by(|later, earlier| later.name == earlier.name);
    shuffle(&mut exchanges, entropy);
    exchanges.sort_by_key(|exchange| exchange.preference);
    Ok(exchanges)
}

/// Fisher-Yates shuffle.
fn shuffle<T>(items: &mut [T], entropy: &dyn Entropy) {
    for last in (1..items.len()).rev() {
        let random = u64::from_le_bytes(entropy::bytes(entropy));
        let chosen = usize::try_from(random % (last as u64 + 1)).unwrap_or(last);
        items.swap(last, chosen);
    }
}

/// Returns the exchanges with a better preference than ours. Servers with our preference or a worse one would send
/// the mail back to us (5.4.6).
fn before(mut exchanges: Vec<Exchange>, own: Option<u16>) -> Vec<Exchange> {
    exchanges.retain(|exchange| own.is_none_or(|own| exchange.preference < own));
    exchanges
}

/// Looks up the servers concurrently and returns the results in their order.
async fn look_up(shared: &Arc<Shared>, exchanges: &[Exchange], requester: Requester) -> Vec<HostLookup> {
    // Dropping the set aborts its tasks, so a cancelled caller leaves no running tasks.
    let mut tasks = JoinSet::new();
    for (place, exchange) in exchanges.iter().cloned().enumerate() {
        let shared = Arc::clone(shared);
        tasks.spawn(async move { (place, find(&shared, exchange, requester).await) });
    }
    let mut found = tasks.join_all().await;
    found.sort_by_key(|(place, _)| *place);
    found.into_iter().map(|(_, found)| found).collect()
}

async fn find(shared: &Shared, exchange: Exchange, requester: Requester) -> HostLookup {
    let answer = shared.host(&exchange.name, requester).await;
    let (v4, v6) = answer.families();
    if v4.iter().chain(&v6).any(|address| shared.own.listens_at(*address)) {
        return HostLookup::Own;
    }
    let some_exist = !(v4.is_empty() && v6.is_empty());
    let permitted = |family: Vec<IpAddr>| -> Vec<IpAddr> {
        family.into_iter().filter(|address| shared.guard.permits(*address)).take(FAMILY_MAX).collect()
    };
    let addresses = interleave(permitted(v4), permitted(v6));
    if !addresses.is_empty() {
        let tlsa_names = tlsa_names(&exchange, &answer);
        return HostLookup::Host(MailHost {
            name: exchange.name,
            preference: exchange.preference,
            addresses,
            tlsa_names,
        });
    }
    match answer.unknown() {
        Some(unknown) => HostLookup::Unknown(unknown.clone()),
        None if some_exist => HostLookup::Blocked,
        None => HostLookup::Nothing,
    }
}

/// Returns the names where the server's TLSA records are looked up. Empty unless DNSSEC validated the whole path to the
/// server. The end of an alias comes first (RFC 7672 2.2.3).
fn tlsa_names(exchange: &Exchange, answer: &HostAnswer) -> Vec<String> {
    if exchange.trust == Trust::Insecure || !answer.is_secure() {
        return Vec::new();
    }
    answer.alias().into_iter().chain([exchange.name.as_str()]).map(str::to_owned).collect()
}

/// Combined result of all servers.
#[derive(Default)]
struct HostLookups {
    hosts: Vec<MailHost>,
    looped: bool,
    blocked: bool,
    /// A lookup that was not made and must be repeated.
    unknown: Option<Unknown>,
}

impl HostLookups {
    /// Adds one round. Returns true if the list ends in it because a server is this service.
    fn take(&mut self, round: &[Exchange], found: Vec<HostLookup>) -> bool {
        let own = round.iter().zip(&found).find(|(_, found)| matches!(found, HostLookup::Own));
        let own = own.map(|(exchange, _)| exchange.preference);
        for (exchange, found) in round.iter().zip(found) {
            if own.is_some_and(|own| exchange.preference >= own) {
                break;
            }
            match found {
                HostLookup::Host(host) => self.hosts.push(host),
                HostLookup::Own | HostLookup::Nothing => {}
                HostLookup::Blocked => self.blocked = true,
                HostLookup::Unknown(_) if self.unknown == Some(Unknown::Unasked) => {}
                HostLookup::Unknown(unknown) => self.unknown = Some(unknown),
            }
        }
        self.looped |= own.is_some();
        own.is_some()
    }

    /// Returns the servers, or the one reason why there are none. Temporary reasons take precedence over permanent
    /// ones.
    fn verdict(self) -> Result<Vec<MailHost>, RouteFailure> {
        if !self.hosts.is_empty() {
            return Ok(self.hosts);
        }
        match self.unknown {
            Some(unknown) => Err(unknown.into()),
            None if self.looped => Err(RouteFailure::Loop),
            None if self.blocked => Err(RouteFailure::BlockedDestination),
            None => Err(RouteFailure::NoHost),
        }
    }
}
