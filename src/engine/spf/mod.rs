//! Evaluation of a domain's SPF record (RFC 7208): whether it lets this server pass, and how many lookups it needs.
//!
//! One walk through the record and those that it includes does both. All queries bypass the cache and are limited,
//! because the domain's owner controls the records and the name servers.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use tokio::time::timeout;

use super::ports::{BoxFuture, Family, LookupFailure, Resolve};
use super::reverse_dns::{DirectRelay, addresses_of, source_addresses};
use crate::domain::network::Network;
use crate::domain::sending_domain::RecordStatus;
use crate::domain::spf_record::{Hosts, Mechanism, SpfRecord, Term, is_claimed_by};

/// Maximum number of lookups after which receivers stop (RFC 7208 4.6.4).
const LOOKUPS_MAX: u32 = 10;
/// Maximum number of lookups without an answer after which receivers stop (RFC 7208 4.6.4).
const VOID_LOOKUPS_MAX: u32 = 2;
/// Maximum number of mail servers of one term `mx` (RFC 7208 4.6.4).
const MAIL_SERVERS_MAX: usize = 10;
/// Maximum number of included records that are read. A record that needs more is far above the limit of lookups.
const RECORDS_MAX: u32 = 20;
/// Total time limit for the walk.
const PATIENCE: Duration = Duration::from_secs(10);

/// Result of the evaluation.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Evaluation {
    /// Whether this server passes with all addresses that mail is sent from. Unchecked if a lookup failed before.
    pub(super) status: RecordStatus,
    /// Number of lookups of the record and all that it includes; `None` if a lookup failed. A record that is included
    /// twice counts twice.
    pub(super) lookups: Option<u32>,
    /// The addresses that mail is sent from and that do not pass. Empty if unchecked.
    pub(super) uncovered: Vec<IpAddr>,
}

/// Evaluates the record `text` at a domain, for the server `host` with these relays.
pub(super) async fn evaluate(
    resolver: &dyn Resolve,
    (domain, text): (&str, &str),
    host: &str,
    relays: &[DirectRelay],
) -> Evaluation {
    let Ok(record) = SpfRecord::parse(text) else {
        return Evaluation { status: RecordStatus::Mismatch, lookups: Some(0), uncovered: Vec::new() };
    };
    let addresses = source_addresses(resolver, relays).await;
    let known: BTreeSet<_> = addresses.iter().flatten().copied().collect();
    let mut all: Vec<_> = known.into_iter().map(Sender::Address).collect();
    if all.is_empty() {
        all.push(Sender::Host);
    }
    let mut senders = Senders { open: all.clone(), passed: Vec::new() };
    let mut walk = Walk { resolver, host, lookups: 0, void_lookups: 0, records: 0, end: None };
    let walked = timeout(PATIENCE, walk.record(domain, &record, &mut senders)).await;
    let is_complete = matches!(walked, Ok(Ok(())));
    all.retain(|sender| !senders.passed.contains(sender));
    let status = if all.is_empty() {
        RecordStatus::Ok
    } else if addresses.is_none() || !is_complete || walk.end == Some(End::Temporary) {
        RecordStatus::Unchecked
    } else {
        RecordStatus::Mismatch
    };
    let uncovered = match status {
        RecordStatus::Mismatch => all.into_iter().filter_map(Sender::address).collect(),
        RecordStatus::Ok | RecordStatus::Missing | RecordStatus::Unchecked => Vec::new(),
    };
    Evaluation { status, lookups: is_complete.then_some(walk.lookups), uncovered }
}

/// A sender that a record is evaluated for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sender {
    /// This server if its addresses are unknown. Only a term with its name matches it.
    Host,
    /// An address that mail is sent from.
    Address(IpAddr),
}

impl Sender {
    const fn address(self) -> Option<IpAddr> {
        match self {
            Self::Host => None,
            Self::Address(address) => Some(address),
        }
    }
}

/// The senders that no term of a record matched yet, and those that pass.
struct Senders {
    open: Vec<Sender>,
    passed: Vec<Sender>,
}

impl Senders {
    /// Returns the open senders with a known address.
    fn addresses(&self) -> Vec<Sender> {
        self.open.iter().copied().filter(|sender| *sender != Sender::Host).collect()
    }

    /// Returns the open senders with an address in one of the networks.
    fn in_networks(&self, networks: &[Network]) -> Vec<Sender> {
        let is_in = |sender: &Sender| match sender {
            Sender::Host => false,
            Sender::Address(address) => networks.iter().any(|network| network.contains(*address)),
        };
        self.open.iter().copied().filter(is_in).collect()
    }

    /// Returns the address families of the open senders: receivers look up only the family of the sender.
    fn families(&self) -> Vec<Family> {
        let is_of = |sender: &Sender, family| match sender {
            Sender::Host => true,
            Sender::Address(address) => Family::of(*address) == family,
        };
        Family::BOTH.into_iter().filter(|family| self.open.iter().any(|sender| is_of(sender, *family))).collect()
    }
}

/// Reason why receivers stop at a term. Later terms then match nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// Receivers treat the record as an error (RFC 7208 2.6.7).
    Permanent,
    /// A lookup failed (RFC 7208 2.6.6).
    Temporary,
}

/// An included record could not be looked up.
struct LookupFailed;

struct Walk<'w> {
    resolver: &'w dyn Resolve,
    host: &'w str,
    lookups: u32,
    void_lookups: u32,
    records: u32,
    end: Option<End>,
}

impl Walk<'_> {
    /// Evaluates the record at a name. Counts its lookups even if receivers stop before.
    fn record<'a>(
        &'a mut self,
        name: &'a str,
        record: &'a SpfRecord<'_>,
        senders: &'a mut Senders,
    ) -> BoxFuture<'a, Result<(), LookupFailed>> {
        Box::pin(async move {
            for Term { passes, mechanism } in &record.terms {
                if mechanism.needs_lookup() {
                    self.count_lookup();
                }
                // The operator chooses the addresses of this server's own name, so they are not looked up.
                if mechanism.names(self.host) {
                    let all = senders.open.clone();
                    self.decide(senders, &all, *passes);
                }
                let matching = match mechanism {
                    Mechanism::All => senders.addresses(),
                    Mechanism::Network(network) => senders.in_networks(&[*network]),
                    Mechanism::Include(included) => self.included(included, &senders.open).await?,
                    Mechanism::Address(hosts) => {
                        let found = self.addresses(hosts.name.unwrap_or(name), senders).await;
                        in_networks_around(hosts, &found, senders)
                    }
                    Mechanism::MailServer(hosts) => {
                        let found = self.mail_servers(hosts.name.unwrap_or(name), senders).await;
                        in_networks_around(hosts, &found, senders)
                    }
                    Mechanism::Exists(existing) if self.exists(existing, senders).await => senders.addresses(),
                    // Reverse names are not evaluated: receivers are advised to ignore them (RFC 7208 5.5).
                    Mechanism::Exists(_) | Mechanism::ReverseName => Vec::new(),
                };
                self.decide(senders, &matching, *passes);
            }
            let Some(next) = record.redirect else { return Ok(()) };
            self.count_lookup();
            let Some(text) = self.text(next).await? else { return Ok(()) };
            match SpfRecord::parse(&text) {
                Ok(record) => self.record(next, &record, senders).await,
                Err(_) => {
                    self.stop(End::Permanent);
                    Ok(())
                }
            }
        })
    }

    /// Returns those of the `open` senders that pass by the record at a name.
    async fn included(&mut self, name: &str, open: &[Sender]) -> Result<Vec<Sender>, LookupFailed> {
        let mut senders = Senders { open: open.to_vec(), passed: Vec::new() };
        let Some(text) = self.text(name).await? else { return Ok(Vec::new()) };
        match SpfRecord::parse(&text) {
            Ok(record) => self.record(name, &record, &mut senders).await?,
            Err(_) => self.stop(End::Permanent),
        }
        Ok(senders.passed)
    }

    /// Records the result of senders that a term matches, unless receivers stop before it.
    fn decide(&self, senders: &mut Senders, matching: &[Sender], passes: bool) {
        if self.end.is_none() {
            let decided: Vec<_> = senders.open.extract_if(.., |sender| matching.contains(sender)).collect();
            senders.passed.extend(decided.into_iter().filter(|_| passes));
        }
    }

    fn stop(&mut self, end: End) {
        self.end.get_or_insert(end);
    }

    fn count_lookup(&mut self) {
        self.lookups += 1;
        if self.lookups > LOOKUPS_MAX {
            self.stop(End::Permanent);
        }
    }

    fn count_void_lookup(&mut self) {
        self.void_lookups += 1;
        if self.void_lookups > VOID_LOOKUPS_MAX {
            self.stop(End::Permanent);
        }
    }

    /// Looks up the record at a name. Returns `None` if there is none, or more than one. A name with a macro depends on
    /// the message, so it has no known record.
    async fn text(&mut self, name: &str) -> Result<Option<String>, LookupFailed> {
        if has_macro(name) || self.records == RECORDS_MAX {
            return Ok(None);
        }
        self.records += 1;
        let mut found = match self.resolver.txt_now(name).await {
            Ok(found) => found,
            Err(LookupFailure::Absent) => Vec::new(),
            Err(LookupFailure::Temporary(_) | LookupFailure::Unasked) => return Err(LookupFailed),
        };
        found.retain(|text| is_claimed_by(text));
        if found.len() != 1 {
            self.stop(End::Permanent);
            return Ok(None);
        }
        Ok(found.pop())
    }

    /// Looks up the addresses of a name, if the result matters.
    async fn addresses(&mut self, name: &str, senders: &Senders) -> Vec<IpAddr> {
        if !self.needs_addresses(name, senders) {
            return Vec::new();
        }
        let found = addresses_of(self.resolver, name, &senders.families()).await;
        self.answer(found)
    }

    /// Returns whether a name has an IPv4 address: receivers look up no other, even for a sender with an IPv6 address
    /// (RFC 7208 5.7).
    async fn exists(&mut self, name: &str, senders: &Senders) -> bool {
        if !self.needs_addresses(name, senders) {
            return false;
        }
        let found = addresses_of(self.resolver, name, &[Family::V4]).await;
        !self.answer(found).is_empty()
    }

    /// Looks up the addresses of a name's mail servers, if the result matters.
    async fn mail_servers(&mut self, name: &str, senders: &Senders) -> Vec<IpAddr> {
        if !self.needs_addresses(name, senders) {
            return Vec::new();
        }
        let servers = self.answer(self.resolver.mx_now(name).await);
        if servers.len() > MAIL_SERVERS_MAX {
            self.stop(End::Permanent);
        }
        let mut found = Vec::new();
        for server in servers.iter().filter(|server| !server.is_empty()) {
            found.extend(self.addresses(server, senders).await);
        }
        found
    }

    fn answer<T>(&mut self, answer: Result<Vec<T>, LookupFailure>) -> Vec<T> {
        match answer {
            Ok(found) => return found,
            Err(LookupFailure::Absent) => self.count_void_lookup(),
            Err(LookupFailure::Temporary(_) | LookupFailure::Unasked) => self.stop(End::Temporary),
        }
        Vec::new()
    }

    fn needs_addresses(&self, name: &str, senders: &Senders) -> bool {
        // A literal in place of a name has no addresses in the DNS.
        self.end.is_none() && !senders.open.is_empty() && !has_macro(name) && name.parse::<IpAddr>().is_err()
    }
}

fn has_macro(name: &str) -> bool {
    name.contains('%')
}

fn in_networks_around(hosts: &Hosts<'_>, found: &[IpAddr], senders: &Senders) -> Vec<Sender> {
    let networks: Vec<_> = found.iter().map(|address| hosts.network(*address)).collect();
    senders.in_networks(&networks)
}

#[cfg(test)]
mod tests;
