//! Name resolution and permitted addresses of webhook receivers: the same as for mail in `serve`, and more addresses in
//! `dev`.

use std::sync::Arc;

use super::config::Config;
use crate::net::dns::HostAddresses;
use crate::net::hosts_file::{HOSTS_FILE, HostsFile};
use crate::net::network_guard::Guard;

/// Name resolution and permitted addresses of webhook receivers.
pub(super) struct Webhooks {
    /// Addresses that the receivers may have.
    pub(super) guard: Arc<Guard>,
    /// Resolver of the host names.
    pub(super) names: Arc<dyn HostAddresses>,
}

impl Webhooks {
    /// Creates the rules. In `dev` local addresses are permitted unless the configuration sets networks.
    pub(super) fn of(config: &Config, guard: &Arc<Guard>, names: Arc<dyn HostAddresses>, is_dev: bool) -> Self {
        if !is_dev || config.is_set("network.allow") {
            return Self { guard: Arc::clone(guard), names };
        }
        let names = Arc::new(HostsFile::new(HOSTS_FILE.into(), names));
        Self { guard: Arc::new(Guard::of_development()), names }
    }
}
