//! The port for probes: checks of this machine's network and DNS setup. Mail delivery does not use it.

use std::net::{IpAddr, SocketAddr};

use super::BoxFuture;

/// A type of DNS record in probe queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordType {
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    Aaaa,
    /// Host names of an address.
    Ptr,
    /// Mail servers, best first.
    Mx,
}

/// Reason why a probe has no records.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProbeFailure {
    /// The name, or a record of this type at it, does not exist.
    #[error("no such record")]
    Absent,
    /// No name server answered. It says nothing about the name.
    #[error("{0}")]
    Unknown(String),
}

/// Network and DNS checks from this machine. Every call has a time limit and bypasses the caches of mail delivery.
pub trait Probe: Send + Sync {
    /// Returns the records at `name` as text: addresses, or names in lower case without trailing dot.
    fn records<'a>(
        &'a self,
        name: &'a str,
        record_type: RecordType,
    ) -> BoxFuture<'a, Result<Vec<String>, ProbeFailure>>;
    /// Returns the first line that the mail server at `server` sends. Connects from `source` if it is given.
    fn greeting<'a>(&'a self, server: SocketAddr, source: Option<IpAddr>) -> BoxFuture<'a, Result<String, String>>;
    /// Returns the addresses that the system sends from to the internet.
    fn sources(&self) -> Vec<IpAddr>;
    /// Returns whether connections to the address are permitted, and whether it is reachable from outside.
    fn permits(&self, address: IpAddr) -> bool;
}
