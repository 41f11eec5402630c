//! `[delivery]`, `[dns]` and `[bounces]`: sending mail, looking up names, and receiving bounces.

use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use super::section::{Section, number, parsed, path, socket, unless_empty};
use crate::domain::address::Address;
use crate::domain::hostname::DomainName;

/// A month, longer than any outage of a receiver that is worth waiting for.
const LIFETIME_HOURS_MAX: i64 = 24 * 30;

/// `[delivery]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Port of receivers' servers.
    pub port: u16,
    /// Time for which a message is retried (`lifetime_hours`).
    pub lifetime: Duration,
    /// Maximum number of connections to receivers.
    pub max_connections: usize,
    /// Port of MTA-STS policy hosts.
    pub mta_sts_port: u16,
    /// Additional root certificates for receivers whose certificate must verify.
    pub extra_roots: Option<PathBuf>,
    /// File of pacing rules that override the built-in ones.
    pub shaping_file: Option<PathBuf>,
    /// File of reply rules that override the built-in ones.
    pub bounces_file: Option<PathBuf>,
    /// Sender of TLS reports (RFC 8460); `None` sends none.
    pub tls_reports_from: Option<Address>,
}

impl Default for Delivery {
    fn default() -> Self {
        Self {
            port: 25,
            lifetime: Duration::from_secs(48 * 3600),
            max_connections: 512,
            mta_sts_port: 443,
            extra_roots: None,
            shaping_file: None,
            bounces_file: None,
            tls_reports_from: None,
        }
    }
}

impl Delivery {
    pub(super) fn read(mut section: Section<'_>, base: Self) -> Self {
        let hours = |node: &_| {
            let hours: u64 = number(1..=LIFETIME_HOURS_MAX)(node)?;
            Ok(Duration::from_secs(hours * 3600))
        };
        let delivery = Self {
            port: section.value("port", base.port, number(1..=65_535)),
            lifetime: section.value("lifetime_hours", base.lifetime, hours),
            max_connections: section.value("max_connections", base.max_connections, number(1..=65_535)),
            mta_sts_port: section.value("mta_sts_port", base.mta_sts_port, number(1..=65_535)),
            extra_roots: section.value("extra_roots", base.extra_roots, unless_empty(path)),
            shaping_file: section.value("shaping_file", base.shaping_file, unless_empty(path)),
            bounces_file: section.value("bounces_file", base.bounces_file, unless_empty(path)),
            tls_reports_from: section.value("tls_reports_from", base.tls_reports_from, unless_empty(parsed)),
        };
        section.finish();
        delivery
    }
}

/// `[dns]`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Dns {
    /// DNS servers for all lookups; empty means the system's.
    pub servers: Vec<SocketAddr>,
    /// File of DNSKEY or DS records as DNSSEC trust anchors. Without it nothing is validated, and DANE is not used.
    pub trust_anchor: Option<PathBuf>,
}

impl Dns {
    pub(super) fn read(mut section: Section<'_>, base: Self) -> Self {
        let dns = Self {
            servers: section.list("servers", base.servers, socket),
            trust_anchor: section.value("trust_anchor", base.trust_anchor, unless_empty(path)),
        };
        section.finish();
        dns
    }
}

/// `[bounces]`: the receiver of returned mail. Without it, return paths use the host name and nothing listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounces {
    /// Domain of return paths.
    pub host: DomainName,
    /// Addresses to listen on for mail; port 0 means any free port.
    pub listen: Vec<SocketAddr>,
}

impl Bounces {
    /// Reads the section. The default of `host` is the host name.
    pub(super) fn read(mut section: Section<'_>, hostname: &DomainName) -> Self {
        let bounces = Self {
            host: section.value("host", None, unless_empty(parsed)).unwrap_or_else(|| hostname.clone()),
            listen: section.list("listen", vec![SocketAddr::from((Ipv6Addr::UNSPECIFIED, 25))], socket),
        };
        section.finish();
        bounces
    }
}
