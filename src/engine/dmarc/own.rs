//! The networks that this service sends from: those of the relays' addresses and of their EHLO names.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::domain::dmarc_source::SourceNetwork;
use crate::engine::Engine;
use crate::engine::ports::LookupFailure;

/// Total time limit for all lookups of names.
const LOOKUPS: Duration = Duration::from_secs(5);

/// Addresses of each name at its last successful lookup. While DNS fails, a source keeps its classification.
#[derive(Debug, Default)]
pub(in crate::engine) struct OwnNetworks(Mutex<BTreeMap<String, HashSet<SourceNetwork>>>);

impl Engine {
    /// Returns the networks that this service sends from, by the last lookup of each name. Names are looked up only if
    /// one of them never was: every report calls this.
    pub(in crate::engine) async fn known_own_networks(&self) -> HashSet<SourceNetwork> {
        let is_complete = {
            let known = self.own_networks.0.lock().unwrap_or_else(PoisonError::into_inner);
            self.settings.egress.names.iter().all(|name| known.contains_key(name))
        };
        if is_complete { self.own_networks_so_far() } else { self.own_networks().await }
    }

    /// Returns the networks that this service sends from.
    pub(in crate::engine) async fn own_networks(&self) -> HashSet<SourceNetwork> {
        let lookups = async {
            for name in &self.settings.egress.names {
                let addresses = match self.resolver.host_addresses(name).await {
                    Ok(addresses) => addresses,
                    Err(LookupFailure::Absent) => Vec::new(),
                    Err(LookupFailure::Temporary(_) | LookupFailure::Unasked) => continue,
                };
                let networks = addresses.into_iter().map(SourceNetwork::of).collect();
                self.own_networks.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone(), networks);
            }
        };
        // Without an answer in time, the earlier result stays.
        let _ = tokio::time::timeout(LOOKUPS, lookups).await;
        self.own_networks_so_far()
    }

    fn own_networks_so_far(&self) -> HashSet<SourceNetwork> {
        let known = self.own_networks.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_names = known.values().flatten().copied();
        of_names.chain(self.settings.egress.addresses.iter().copied().map(SourceNetwork::of)).collect()
    }
}
