//! Name resolution and permitted addresses of webhook receivers: those of mail in `serve`, and wider ones in `dev`.

use std::sync::Arc;

use super::config::Config;
use crate::net::dns::HostAddresses;
use crate::net::guard::Guard;
use crate::net::hosts_file::{HOSTS_FILE, HostsFile};

/// Name resolution and permitted addresses of webhook receivers.
pub(super) struct Webhooks {
    /// Which addresses they may reach.
    pub(super) guard: Arc<Guard>,
    /// Where their names are looked up.
    pub(super) names: Arc<dyn HostAddresses>,
}

impl Webhooks {
    /// In `dev`, unless the configuration says what may be reached, receivers may run beside it.
    pub(super) fn of(config: &Config, guard: &Arc<Guard>, names: Arc<dyn HostAddresses>, is_dev: bool) -> Self {
        if !is_dev || config.is_set("network.allow") {
            return Self { guard: Arc::clone(guard), names };
        }
        let names = Arc::new(HostsFile::new(HOSTS_FILE.into(), names));
        Self { guard: Arc::new(Guard::of_development()), names }
    }
}
