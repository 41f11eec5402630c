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
        let known = self.own_networks.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_names = known.values().flatten().copied();
        of_names.chain(self.settings.egress.addresses.iter().copied().map(SourceNetwork::of)).collect()
    }
}
