//! The daemon's facts for alerts: how its last run ended, and checks that need more than the engine knows.

use std::sync::Arc;

use super::config::Config;
use super::exit::Exit;
use super::run_marker::RunMarker;
use crate::engine::Engine;
use crate::engine::alerts::outlook::Sources;
use crate::net::network_guard::Guard;
use crate::net::probe::network::NetworkProbe;
use crate::net::tls_settings::PresentedCertificate;
use crate::store::error::StoreError;

/// Marks the service as running, and raises an alert if the last run did not stop cleanly.
///
/// # Errors
/// Store errors.
pub(super) async fn begin_run(engine: &Engine) -> Result<RunMarker, StoreError> {
    let marker = RunMarker::place(engine.store.directory());
    if let Some(seen) = marker.left_behind() {
        tracing::warn!("the last run of the service did not end cleanly; raising an alert");
        engine.note_unclean_stop(seen).await?;
    }
    Ok(marker)
}

/// Removes the mark of a run that stops cleanly.
pub(super) fn end_run(marker: RunMarker, exit: Exit) -> Exit {
    marker.remove();
    exit
}

/// Returns the sources of facts for the checks.
pub(super) fn sources(config: &Config, guard: &Arc<Guard>, presented: Option<Arc<PresentedCertificate>>) -> Sources {
    let certificate_until = move || presented.as_ref().and_then(|presented| presented.meters.until());
    Sources {
        probe: Arc::new(NetworkProbe::new(&config.dns.servers, Arc::clone(guard))),
        certificate_until: Box::new(certificate_until),
        mail_port: config.delivery.port,
    }
}
