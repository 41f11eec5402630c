//! Reverse DNS names of the source addresses: looked up once an hour, for the checklists of all domains.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;

use super::ports::{LookupFailure, Resolve};
use crate::machine::checklist::dns::SourceFacts;

/// Maximum age of cached names.
const AGE_MAX: Duration = Duration::from_secs(3600);
/// Maximum age of a cached failure.
const FAILURE_AGE_MAX: Duration = Duration::from_secs(300);
/// Total time limit for all lookups.
const PATIENCE: Duration = Duration::from_secs(10);

/// A relay that delivers directly to the recipients' servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectRelay {
    /// EHLO name.
    pub ehlo: String,
    /// Source addresses as receivers see them. Empty behind NAT, where the addresses of the EHLO name count.
    pub sources: Vec<IpAddr>,
}

/// Names from the last lookup.
#[derive(Default)]
pub(super) struct ReverseDns(Mutex<Option<Looked>>);

struct Looked {
    at: Duration,
    sources: Vec<SourceFacts>,
}

impl ReverseDns {
    /// Returns the names of all source addresses, at `now` of the monotonic clock.
    pub(super) async fn names(
        &self,
        resolver: &Arc<dyn Resolve>,
        relays: &[DirectRelay],
        now: Duration,
    ) -> Vec<SourceFacts> {
        let mut last = self.0.lock().await;
        if let Some(looked) = &*last {
            let is_whole = looked.sources.iter().all(|source| source.names.is_some());
            let age_max = if is_whole { AGE_MAX } else { FAILURE_AGE_MAX };
            if now.saturating_sub(looked.at) < age_max {
                return looked.sources.clone();
            }
        }
        let sources = look(resolver, relays).await;
        *last = Some(Looked { at: now, sources: sources.clone() });
        sources
    }

    /// Drops the names, so that the next caller looks them up again. A look-up that is running stays.
    pub(super) fn forget(&self) {
        if let Ok(mut last) = self.0.try_lock() {
            *last = None;
        }
    }
}

impl DirectRelay {
    /// Returns its source addresses as receivers see them. `None` if a lookup failed.
    async fn addresses(&self, resolver: &dyn Resolve) -> Option<Vec<IpAddr>> {
        if !self.sources.is_empty() {
            return Some(self.sources.clone());
        }
        match tokio::time::timeout(PATIENCE, resolver.host_addresses_now(&self.ehlo)).await.ok()? {
            Ok(addresses) => Some(addresses),
            Err(LookupFailure::Absent) => Some(Vec::new()),
            Err(LookupFailure::Temporary(_) | LookupFailure::Unasked) => None,
        }
    }
}

/// Returns the source addresses of all relays as receivers see them. `None` if a lookup failed.
pub(super) async fn source_addresses(resolver: &dyn Resolve, relays: &[DirectRelay]) -> Option<Vec<IpAddr>> {
    let mut sources = Vec::new();
    for relay in relays {
        sources.extend(relay.addresses(resolver).await?);
    }
    Some(sources)
}

async fn look(resolver: &Arc<dyn Resolve>, relays: &[DirectRelay]) -> Vec<SourceFacts> {
    let mut found: Vec<SourceFacts> = Vec::new();
    for relay @ DirectRelay { ehlo, .. } in relays {
        for address in relay.addresses(&**resolver).await.unwrap_or_default() {
            if found.iter().any(|source| source.address == address && source.ehlo == *ehlo) {
                continue;
            }
            let names = tokio::time::timeout(PATIENCE, confirmed(&**resolver, address)).await;
            found.push(SourceFacts { address, ehlo: ehlo.clone(), names: names.ok().flatten() });
        }
    }
    found
}

/// Returns the names of an address that resolve to it. `None` if a lookup failed.
async fn confirmed(resolver: &dyn Resolve, address: IpAddr) -> Option<Vec<String>> {
    let names = match resolver.ptr_now(address).await {
        Ok(names) => names,
        Err(LookupFailure::Absent) => return Some(Vec::new()),
        Err(LookupFailure::Temporary(_) | LookupFailure::Unasked) => return None,
    };
    let mut confirmed = Vec::new();
    for name in names {
        match resolver.host_addresses_now(&name).await {
            Ok(addresses) if addresses.contains(&address) => confirmed.push(name),
            Ok(_) | Err(LookupFailure::Absent) => {}
            Err(LookupFailure::Temporary(_) | LookupFailure::Unasked) => return None,
        }
    }
    Some(confirmed)
}
