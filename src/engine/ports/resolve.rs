//! The DNS resolver: mail servers, and the records of domains.

use std::net::IpAddr;

use super::BoxFuture;
use crate::base::id::{AccountId, Ulid};
use crate::domain::hostname::DomainName;
use crate::domain::stream::Stream;
use crate::smtp::tlsa::TlsaRecord;

/// An address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4, with A records.
    V4,
    /// IPv6, with AAAA records.
    V6,
}

impl Family {
    /// Both families.
    pub const BOTH: [Self; 2] = [Self::V4, Self::V6];

    /// Returns the family of an address.
    pub const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// Returns the addresses of this family, or [`LookupFailure::Absent`] if there are none.
    pub fn only(self, found: impl IntoIterator<Item = IpAddr>) -> Result<Vec<IpAddr>, LookupFailure> {
        let found: Vec<_> = found.into_iter().filter(|address| Self::of(*address) == self).collect();
        if found.is_empty() { Err(LookupFailure::Absent) } else { Ok(found) }
    }
}

/// Maximum number of mail servers of a domain that are used, the best first.
pub const MAIL_HOSTS_MAX: usize = 20;

/// One mail server of a domain, with its addresses in the order to try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailHost {
    /// The server's name, without trailing dot.
    pub name: String,
    /// MX preference; 0 for an implicit MX.
    pub preference: u16,
    /// Addresses that may be connected to; never empty.
    pub addresses: Vec<IpAddr>,
    /// Names of the server's TLSA records, in the order of the queries. Empty unless DNSSEC authenticates the MX
    /// records (or their absence) and the addresses: otherwise DANE does not apply (RFC 7672 2.2).
    pub tlsa_names: Vec<String>,
}

/// Failure to find a mail server for a domain (contract 6).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RouteFailure {
    /// NXDOMAIN: permanent, 5.1.2.
    #[error("the domain does not exist")]
    NoSuchDomain,
    /// A null MX (RFC 7505): permanent, 5.1.10.
    #[error("the domain accepts no mail (null MX)")]
    NullMx,
    /// Every answer is an authoritative "no such host": permanent, 5.4.4.
    #[error("no mail server of the domain has an address")]
    NoHost,
    /// All addresses are in blocked networks: permanent, 5.4.4 `blocked_destination`.
    #[error("the domain's mail servers have no address that may be reached")]
    BlockedDestination,
    /// The best server is this one: permanent, 5.4.6.
    #[error("the domain's mail loops back to this server")]
    Loop,
    /// DNS did not answer (SERVFAIL, time-out): transient, 4.4.3.
    #[error("the domain could not be looked up: {0}")]
    Temporary(String),
    /// Too many lookups are in flight, so no query was sent. Nothing is known, and it does not count as an attempt.
    #[error("too many lookups at once")]
    Unasked,
}

/// Failure to read a DNS record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LookupFailure {
    /// The name, or a record of this type at it, does not exist.
    #[error("no such record")]
    Absent,
    /// DNS did not answer.
    #[error("the lookup failed: {0}")]
    Temporary(String),
    /// Too many lookups are in flight, so no query was sent. It says nothing about the name.
    #[error("too many lookups at once")]
    Unasked,
}

/// The mail that a query is sent for. Accounts share the queries in flight, so that no account waits for another's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Requester {
    /// The account. Webhook endpoints, the service and its checks have shares of their own, under their identifiers.
    pub account: AccountId,
    /// The stream. Marketing mail never uses all queries.
    pub stream: Stream,
}

impl Requester {
    /// The service itself, for the names in its configuration.
    pub const SERVICE: Self = Self::nil(0);
    /// Checks of names that strangers choose: records of domains, signatures of reports, recipients of TLS reports.
    pub const CHECKS: Self = Self::nil(1);

    /// No account has an identifier of the year 1970.
    const fn nil(last: u8) -> Self {
        let mut bytes = [0; 16];
        bytes[15] = last;
        Self { account: AccountId(Ulid(bytes)), stream: Stream::Transactional }
    }
}

/// A DNS resolver. Every lookup has a time limit and is cached according to its TTL.
pub trait Resolve: Send + Sync {
    /// Returns the mail servers of `domain`, in the order to try.
    fn mail_hosts<'a>(
        &'a self,
        domain: &'a DomainName,
        requester: Requester,
    ) -> BoxFuture<'a, Result<Vec<MailHost>, RouteFailure>>;
    /// Returns the TLSA records at `name`. Records without a valid DNSSEC signature count as absent.
    fn tlsa<'a>(&'a self, name: &'a str, requester: Requester)
    -> BoxFuture<'a, Result<Vec<TlsaRecord>, LookupFailure>>;
    /// Returns the TXT records at `name`, each with its strings joined.
    fn txt<'a>(&'a self, name: &'a str, requester: Requester) -> BoxFuture<'a, Result<Vec<String>, LookupFailure>>;
    /// Returns the site of `domain`: the names of all its mail servers, in lower case and sorted. Unreachable servers
    /// are included, so the site does not change when a server fails.
    fn mail_exchanges<'a>(
        &'a self,
        domain: &'a DomainName,
        requester: Requester,
    ) -> BoxFuture<'a, Result<Vec<String>, RouteFailure>> {
        Box::pin(async move {
            let hosts = self.mail_hosts(domain, requester).await?;
            let mut names: Vec<_> = hosts.into_iter().map(|host| host.name.to_ascii_lowercase()).collect();
            names.sort();
            Ok(names)
        })
    }
    /// Returns the addresses of a host from the configuration, such as a smarthost. All networks are allowed.
    fn host_addresses<'a>(&'a self, host: &'a str) -> BoxFuture<'a, Result<Vec<IpAddr>, LookupFailure>>;
    /// Returns the addresses as [`host_addresses`](Self::host_addresses) does. Bypasses the cache, if there is one.
    fn host_addresses_now<'a>(&'a self, host: &'a str) -> BoxFuture<'a, Result<Vec<IpAddr>, LookupFailure>> {
        self.host_addresses(host)
    }
    /// Returns the addresses of a host in one family, or the reason why they are unknown. Unlike the lookups for a
    /// connection, it waits for the whole answer. Bypasses the cache.
    fn family_addresses_now<'a>(
        &'a self,
        host: &'a str,
        family: Family,
    ) -> BoxFuture<'a, Result<Vec<IpAddr>, LookupFailure>> {
        Box::pin(async move { family.only(self.host_addresses_now(host).await?) })
    }
    /// Returns the TXT records at `name`, each with its strings joined. Bypasses the cache.
    fn txt_now<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Vec<String>, LookupFailure>>;
    /// Returns the target of the CNAME at `name` without trailing dot. Bypasses the cache.
    fn cname_now<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<String, LookupFailure>>;
    /// Returns the names of the MX records at `name`, best first, without trailing dot. The name of a null MX is empty.
    /// Bypasses the cache.
    fn mx_now<'a>(&'a self, _name: &'a str) -> BoxFuture<'a, Result<Vec<String>, LookupFailure>> {
        Box::pin(async { Err(LookupFailure::Unasked) })
    }
    /// Returns the names of an address (PTR) without trailing dot. Bypasses the cache.
    fn ptr_now(&self, _address: IpAddr) -> BoxFuture<'_, Result<Vec<String>, LookupFailure>> {
        Box::pin(async { Err(LookupFailure::Unasked) })
    }
}
