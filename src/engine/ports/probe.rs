//! The port of probes: questions about this machine's place in the world, asked by checks and never by mail itself.

use std::net::{IpAddr, SocketAddr};

use super::BoxFuture;

/// A type of DNS record that probes ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordType {
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    Aaaa,
    /// Names of an address.
    Ptr,
    /// Mail servers, best first.
    Mx,
}

/// Why a probe has no records.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProbeFailure {
    /// The name, or a record of this type at it, does not exist.
    #[error("there is none")]
    Absent,
    /// No name server answers; this says nothing about the name.
    #[error("{0}")]
    Unknown(String),
}

/// Looks from this machine into the world. Every call is bounded in time and asked past the caches of mail.
pub trait Probe: Send + Sync {
    /// The records at `name` as text: addresses, and names in lower case without trailing dot.
    fn records<'a>(
        &'a self,
        name: &'a str,
        record_type: RecordType,
    ) -> BoxFuture<'a, Result<Vec<String>, ProbeFailure>>;
    /// The first line of the mail server at `server`, connected to from `source` where one is given.
    fn greeting<'a>(&'a self, server: SocketAddr, source: Option<IpAddr>) -> BoxFuture<'a, Result<String, String>>;
    /// The addresses that the system sends from to the internet.
    fn sources(&self) -> Vec<IpAddr>;
    /// Whether an address is one that may be reached, and reached from outside.
    fn permits(&self, address: IpAddr) -> bool;
}
