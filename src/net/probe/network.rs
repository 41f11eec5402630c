//! Network probe for the checks of alerts and `postrider doctor`: implements the port [`Probe`] with real sockets.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use super::dns::{DnsProbe, ProbeType, ServerError};
use super::mail::greeting;
use crate::engine::ports::BoxFuture;
use crate::engine::ports::probe::{Probe, ProbeFailure, RecordType};
use crate::net::network_guard::Guard;
use crate::net::plain_error::plain_error;
use crate::net::source_address;

/// Time limit for one connection.
const CONNECTING: Duration = Duration::from_secs(5);

/// Probes the network from this machine.
pub struct NetworkProbe {
    dns: Result<DnsProbe, String>,
    guard: Arc<Guard>,
}

impl NetworkProbe {
    /// Creates a probe that queries `servers`, or the system's servers if the list is empty. Addresses that `guard`
    /// refuses count as not public.
    pub fn new(servers: &[SocketAddr], guard: Arc<Guard>) -> Self {
        Self { dns: DnsProbe::new(servers), guard }
    }
}

impl Probe for NetworkProbe {
    fn records<'a>(
        &'a self,
        name: &'a str,
        record_type: RecordType,
    ) -> BoxFuture<'a, Result<Vec<String>, ProbeFailure>> {
        let asked = match record_type {
            RecordType::A => ProbeType::A,
            RecordType::Aaaa => ProbeType::Aaaa,
            RecordType::Ptr => ProbeType::Ptr,
            RecordType::Mx => ProbeType::Mx,
        };
        Box::pin(async move {
            let dns = self.dns.as_ref().map_err(|why| ProbeFailure::Unknown(why.clone()))?;
            let answer = dns.ask(name, asked).await.map_err(|failure| match failure {
                ServerError::Absent => ProbeFailure::Absent,
                ServerError::Failed(why) => ProbeFailure::Unknown(why),
            })?;
            Ok(answer.records)
        })
    }

    fn greeting<'a>(&'a self, server: SocketAddr, source: Option<IpAddr>) -> BoxFuture<'a, Result<String, String>> {
        Box::pin(async move {
            greeting(server, source, CONNECTING).await.map_err(|error| match error.kind() {
                io::ErrorKind::TimedOut => format!("no greeting within {} s", CONNECTING.as_secs()),
                _ => plain_error(error),
            })
        })
    }

    fn sources(&self) -> Vec<IpAddr> {
        source_address::sources()
    }

    fn permits(&self, address: IpAddr) -> bool {
        self.guard.permits(address)
    }
}
