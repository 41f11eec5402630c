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
    /// Creates the rules. In `dev` plain http is permitted, and so are local addresses unless the configuration sets
    /// networks.
    pub(super) fn of(config: &Config, guard: &Arc<Guard>, names: Arc<dyn HostAddresses>, is_dev: bool) -> Self {
        if !is_dev {
            return Self { guard: Arc::clone(guard), names };
        }
        let names = Arc::new(HostsFile::new(HOSTS_FILE.into(), names));
        let is_set = config.is_set("network.allow");
        let guard = if is_set { guard.with_plain_http() } else { Guard::of_development() };
        Self { guard: Arc::new(guard), names }
    }
}
