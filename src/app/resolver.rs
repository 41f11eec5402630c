//! The resolver, as configured.

use std::path::Path;
use std::sync::Arc;

use super::cli_error::CliError;
use super::config::Config;
use super::daemon::broken;
use crate::base::entropy::Entropy;
use crate::engine::ports::Clock;
use crate::net::dns::{Anchors, DnsSettings, OwnHosts, Resolver};
use crate::net::network_guard::Guard;

/// Creates the resolver with the configured name servers.
///
/// # Errors
/// The error for the operator.
pub(super) fn resolver(
    config: &Config,
    guard: &Arc<Guard>,
    clock: &Arc<dyn Clock>,
    entropy: &Arc<dyn Entropy>,
    is_dev: bool,
) -> Result<Arc<Resolver>, CliError> {
    let trust_anchors = config.dns.trust_anchor.as_deref().map(trust_anchors).transpose()?;
    let servers = config.dns.servers.clone();
    let settings = DnsSettings { servers, trust_anchors, may_lack_servers: is_dev, ..DnsSettings::default() };
    let greeting_as = config.relays.iter().filter_map(|relay| relay.ehlo.as_ref()).map(ToString::to_string);
    let receiving_as = config.bounces.iter().map(|bounces| bounces.host.to_string());
    let own = OwnHosts::new(greeting_as.chain(receiving_as).chain([config.hostname.to_string()]), []);
    let resolver = Resolver::new(&settings, own, Arc::clone(guard), Arc::clone(clock), Arc::clone(entropy));
    resolver.map(Arc::new).map_err(|error| broken("name resolution", &error))
}

fn trust_anchors(path: &Path) -> Result<Anchors, CliError> {
    let text = std::fs::read_to_string(path).map_err(|error| broken("dns.trust_anchor", &error))?;
    Anchors::read(&text).map_err(|fault| broken("dns.trust_anchor", &fault))
}
