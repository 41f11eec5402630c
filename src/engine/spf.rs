//! Evaluation of a domain's SPF record (RFC 7208): whether it lets this server pass, and how many lookups it needs.
//!
//! One walk through the record and those that it includes does both. All queries bypass the cache and are limited,
//! because the domain's owner controls the records and the name servers.

use std::net::IpAddr;
use std::time::Duration;

use tokio::time::timeout;

use super::ports::{BoxFuture, LookupFailure, Resolve};
use super::reverse_dns::{DirectRelay, source_addresses};
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
    /// Whether this server passes: by its name, or by all addresses that mail is sent from. Unchecked if a lookup
    /// failed before.
    pub(super) status: RecordStatus,
    /// Number of lookups of the record and all that it includes; `None` if a lookup failed. A record that is included
    /// twice counts twice.
    pub(super) lookups: Option<u32>,
}

/// Evaluates the record `text` at a domain. `host` is this server's name, which sends through `relays`.
pub(super) async fn evaluate(
    resolver: &dyn Resolve,
    (domain, text): (&str, &str),
    host: &str,
    relays: &[DirectRelay],
) -> Evaluation {
    let Ok(record) = SpfRecord::parse(text) else {
        return Evaluation { status: RecordStatus::Mismatch, lookups: Some(0) };
    };
    // A record that names this server passes without lookups.
    let addresses = if record.decision_about(host) == Some(true) {
        Some(Vec::new())
    } else {
        source_addresses(resolver, relays).await
    };
    let of_addresses = addresses.iter().flatten().copied().map(Sender::Address);
    let mut senders = Senders { open: of_addresses.chain([Sender::Host]).collect(), passed: Vec::new() };
    let mut walk = Walk { resolver, host, lookups: 0, void_lookups: 0, records: 0, end: None };
    let walked = timeout(PATIENCE, walk.record(domain, &record, &mut senders)).await;
    let is_complete = matches!(walked, Ok(Ok(())));
    let passes = |sender| senders.passed.contains(&sender);
    let is_covered = |addresses: &[IpAddr]| {
        !addresses.is_empty() && addresses.iter().all(|address| passes(Sender::Address(*address)))
    };
    let status = match &addresses {
        _ if passes(Sender::Host) => RecordStatus::Ok,
        None => RecordStatus::Unchecked,
        Some(addresses) if is_covered(addresses) => RecordStatus::Ok,
        Some(_) if !is_complete || walk.end == Some(End::Temporary) => RecordStatus::Unchecked,
        Some(_) => RecordStatus::Mismatch,
    };
    Evaluation { status, lookups: is_complete.then_some(walk.lookups) }
}

/// A way to recognise this server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sender {
    /// By its name: the addresses behind it are not looked up.
    Host,
    /// By an address that it sends from.
    Address(IpAddr),
}

/// The senders that no term of a record matched yet, and those that pass.
struct Senders {
    open: Vec<Sender>,
    passed: Vec<Sender>,
}

impl Senders {
    /// Returns those that any network contains.
    fn addresses(&self) -> Vec<Sender> {
        self.open.iter().copied().filter(|sender| *sender != Sender::Host).collect()
    }

    fn in_networks(&self, networks: &[Network]) -> Vec<Sender> {
        let is_in = |sender: &Sender| match sender {
            Sender::Host => false,
            Sender::Address(address) => networks.iter().any(|network| network.contains(*address)),
        };
        self.open.iter().copied().filter(is_in).collect()
    }
}

/// Why receivers stop at a term, so that later ones match nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// The record is an error for them (RFC 7208 2.6.7).
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
            if let Some(passes) = record.decision_about(self.host) {
                self.decide(senders, &[Sender::Host], passes);
            }
            for Term { passes, mechanism } in &record.terms {
                if mechanism.needs_lookup() {
                    self.count_lookup();
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
                    Mechanism::Exists(existing) if !self.addresses(existing, senders).await.is_empty() => {
                        senders.addresses()
                    }
                    // Reverse names are not evaluated: receivers are told to ignore them (RFC 7208 5.5).
                    Mechanism::Exists(_) | Mechanism::ReverseName => Vec::new(),
                };
                self.decide(senders, &matching, *passes);
            }
            let Some(next) = record.redirect else { return Ok(()) };
            self.count_lookup();
            let Some(text) = self.text(next).await? else { return Ok(()) };
            match SpfRecord::parse(&text) {
                Ok(record) => self.record(next, &record, senders).await,
                Err(_) => Ok(self.stop(End::Permanent)),
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
        match self.needs_addresses(name, senders) {
            true => self.answer(self.resolver.host_addresses_now(name).await),
            false => Vec::new(),
        }
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
        let has_address = !senders.addresses().is_empty();
        // A literal in place of a name has no addresses in the DNS.
        self.end.is_none() && has_address && !has_macro(name) && name.parse::<IpAddr>().is_err()
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
mod tests {
    use super::*;
    use crate::engine::dns_facts::tests::Names;
    use RecordStatus::{Mismatch, Ok as Pass, Unchecked};

    const HOST: &str = "mail.example.com";

    fn names() -> Names {
        Names::new([
            ("spf.example", "unrelated|v=spf1 a:mail.example.com -all"),
            ("outer.example", "v=spf1 include:spf.example -all"),
            ("other.example", "v=spf1 a:other.example.com -all"),
            ("two.example", "v=spf1 +all|v=spf1 +all"),
            ("invalid.example", "v=spf1 +all foo:bar"),
            ("loop.example", "v=spf1 a include:loop.example -all"),
            ("bad.example", "!"),
            ("ours.example", "v=spf1 ip4:192.0.2.0/24 ip6:2001:db8::/32 ?all"),
            ("half.example", "v=spf1 ip4:192.0.2.0/24 -all"),
            ("own.example", "v=spf1 a mx -all"),
            ("A own.example", "192.0.2.7"),
            ("MX own.example", "mx1.example|mx2.example"),
            ("A mx1.example", "198.51.100.1"),
            ("A mx2.example", "2001:db8::2"),
            ("A bad.example", "!"),
            ("A 192.0.2.7", "192.0.2.7"),
        ])
    }

    async fn evaluate_from(sources: &[&str], record: &str) -> Evaluation {
        let sources = sources.iter().map(|text| text.parse().unwrap()).collect();
        let relays = [DirectRelay { ehlo: HOST.to_owned(), sources }];
        evaluate(&names(), ("own.example", record), HOST, &relays).await
    }

    #[tokio::test]
    async fn a_host_passes_by_its_name_in_the_record_itself_an_included_one_or_a_redirection() {
        for (record, expected) in [
            ("v=spf1 mx a:Mail.Example.com. -all", Pass),
            ("v=spf1 include:mail.example.com -all", Pass),
            ("v=spf1 -a:mail.example.com -all", Mismatch),
            ("v=spf1 redirect=spf.example", Pass),
            ("v=spf1 redirect=outer.example", Pass),
            ("v=spf1 include:other.example include:outer.example ~all", Pass),
            ("v=spf1 -include:spf.example -all", Mismatch),
            ("v=spf1 redirect=other.example", Mismatch),
            ("v=spf1 redirect=nowhere.example", Mismatch),
            ("v=spf1 include:two.example -all", Mismatch),
            ("v=spf1 include:invalid.example include:spf.example -all", Mismatch),
            ("v=spf1 include:loop.example -all", Mismatch),
            ("v=spf1 redirect=bad.example", Unchecked),
            ("v=spf1 include:bad.example -all", Unchecked),
            ("v=spf1 include:bad.example a:mail.example.com -all", Pass),
            ("v=spf1 include:bad.example include:spf.example -all", Unchecked),
            ("v=spf1 a:mail.example.com foo:bar -all", Mismatch),
        ] {
            assert_eq!(evaluate_from(&["203.0.113.1"], record).await.status, expected, "{record}");
        }
    }

    #[tokio::test]
    async fn a_record_that_covers_every_source_address_passes() {
        let both = &["192.0.2.7", "2001:db8::2"][..];
        for (sources, record, expected) in [
            (both, "v=spf1 ip4:192.0.2.7 ip6:2001:db8::/64 -all", Pass),
            (both, "v=spf1 ip4:192.0.2.7 -all", Mismatch),
            (both, "v=spf1 -ip4:192.0.2.7 +all", Mismatch),
            (both, "v=spf1 include:ours.example -all", Pass),
            (both, "v=spf1 include:half.example ip6:2001:db8::2 -all", Pass),
            (both, "v=spf1 ~include:ours.example -all", Mismatch),
            (both, "v=spf1 redirect=ours.example", Pass),
            (both, "v=spf1 include:own.example -all", Pass),
            (both, "v=spf1 a mx -all", Pass),
            (both, "v=spf1 a -all", Mismatch),
            (both, "v=spf1 a/24 mx//64 -all", Pass),
            (&["192.0.2.200"], "v=spf1 a/24 -all", Pass),
            (&["192.0.2.200"], "v=spf1 a -all", Mismatch),
            (&["192.0.2.7"], "v=spf1 a:192.0.2.7 -all", Mismatch),
            (&["192.0.2.7"], "v=spf1 exists:own.example -all", Pass),
            (&["192.0.2.7"], "v=spf1 exists:%{i}.own.example -all", Mismatch),
            (&["192.0.2.7"], "v=spf1 ip4:192.0.2.7 include:bad.example -all", Pass),
            (&["192.0.2.7"], "v=spf1 a:bad.example ip4:192.0.2.7 -all", Unchecked),
            (&["192.0.2.7"], "v=spf1 include:nowhere.example ip4:192.0.2.7 -all", Mismatch),
            // The EHLO name has no address.
            (&[], "v=spf1 ip4:192.0.2.7 -all", Mismatch),
        ] {
            assert_eq!(evaluate_from(sources, record).await.status, expected, "{sources:?} {record}");
        }
    }

    #[tokio::test]
    async fn receivers_stop_after_ten_lookups_or_two_without_an_answer() {
        let ours = "ip4:192.0.2.7 -all";
        for (terms, expected) in [
            ("exists:a.test exists:b.test ", Pass),
            ("exists:a.test exists:b.test exists:c.test ", Mismatch),
            (&"ptr ".repeat(10), Pass),
            (&"ptr ".repeat(11), Mismatch),
        ] {
            assert_eq!(
                evaluate_from(&["192.0.2.7"], &format!("v=spf1 {terms}{ours}")).await.status,
                expected,
                "{terms}"
            );
        }
    }

    #[tokio::test]
    async fn lookups_are_counted_through_includes_and_bounded_in_a_loop() {
        for (record, expected) in [
            ("v=spf1 ip4:192.0.2.1 -all", Some(0)),
            ("v=spf1 a mx/24 ?ptr exists:%{i}.x.example exp=x.example -all", Some(4)),
            ("v=spf1 include:outer.example -all", Some(3)),
            ("v=spf1 include:own.example include:own.example redirect=nowhere.example", Some(7)),
            ("v=spf1 include:%{d}.example -all", Some(1)),
            ("v=spf1 -all include:outer.example redirect=outer.example", Some(0)),
            ("v=spf1 include:bad.example -all", None),
            ("v=spf1 a:bad.example -all", Some(1)),
            ("v=spf1 include:loop.example -all", Some(41)),
        ] {
            assert_eq!(evaluate_from(&["203.0.113.1"], record).await.lookups, expected, "{record}");
        }
    }
}
