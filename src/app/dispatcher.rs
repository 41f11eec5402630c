//! The dispatcher of the daemon: the engine's loop over the real network.

use std::sync::Arc;

use tokio::sync::watch;

use super::cli_error::CliError;
use super::config::Config;
use super::daemon::broken;
use super::egress_routes;
use super::webhooks::Webhooks;
use crate::engine::dispatcher::Dispatcher;
use crate::engine::replica::{Active, Shared};
use crate::engine::{CaptureRoute, Engine, Tables};
use crate::net::dns::{HostAddresses, Resolver};
use crate::net::mta_sts::{self, HttpsPolicyHosts};
use crate::net::network_guard::Guard;
use crate::net::post::{self, HttpPost};
use crate::net::tls;
use crate::net::transmit::Transmitter;
use crate::store::error::StoreError;

/// Creates a dispatcher that delivers mail and webhooks as configured.
pub(super) fn dispatcher(
    config: &Config,
    engine: &Arc<Engine>,
    resolver: Arc<Resolver>,
    guard: &Arc<Guard>,
    webhooks: Webhooks,
    capture: Option<Arc<CaptureRoute>>,
    tables: Tables,
) -> Result<Dispatcher, CliError> {
    let delivery_roots = tls::trusted_roots(config.delivery.extra_roots.as_deref());
    let delivery_roots = delivery_roots.map_err(|fault| broken("delivery.extra_roots", &fault))?;
    let transmitter = Transmitter::new(delivery_roots.clone()).map_err(|error| broken("TLS for delivery", &error))?;
    let roots =
        tls::trusted_roots(config.webhooks.extra_roots.as_deref()).map_err(|fault| broken("webhooks", &fault))?;
    let names: Arc<dyn HostAddresses> = resolver;
    let post = Arc::new(HttpPost::new(roots, webhooks.names, webhooks.guard, post::DEADLINE));
    let port = config.delivery.mta_sts_port;
    let policy_hosts = HttpsPolicyHosts::new(delivery_roots, names, Arc::clone(guard), port, mta_sts::DEADLINE);
    let routes = egress_routes::egress_routes(config, capture)?;
    Ok(Dispatcher::new(Arc::clone(engine), Arc::new(transmitter), Arc::new(policy_hosts), post, routes, tables))
}

/// Runs the dispatcher once the previous holder of the log can't send mail any more.
pub(super) async fn run_when_permitted(
    replica: Option<Arc<Shared>>,
    dispatcher: Dispatcher,
    mut stopped: watch::Receiver<bool>,
) -> Result<(), StoreError> {
    if let Some(shared) = replica {
        if shared.waits_for_predecessor() {
            tracing::info!("accepting mail; sending starts once the previous machine's lease has expired");
        }
        tokio::select! {
            biased;
            () = Active::may_mail(shared) => {}
            _ = stopped.wait_for(|stopped| *stopped) => {}
        }
    }
    dispatcher.run(stopped).await
}
