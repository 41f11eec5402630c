//! The listener for metrics, as configured in `[metrics]`: starts with the service, and stops last.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::cli_error::CliError;
use super::config::Config;
use super::exit::Exit;
use crate::engine::Engine;
use crate::http::meters::RequestMeters;
use crate::http::metrics::{MetricsService, Process};
use crate::net::http_listener::{HttpLimits, HttpServer, Serve};
use crate::net::tls_settings::PresentedCertificate;

/// Maximum number of connections: there is usually one scraper, in the operator's own network.
const CONNECTIONS_MAX: usize = 32;

/// The listener.
pub(super) struct Metrics<S: Serve = MetricsService> {
    server: HttpServer<S>,
    /// Bound address, if it listens.
    pub(super) address: Option<SocketAddr>,
}

impl Metrics {
    /// Listens as configured.
    ///
    /// # Errors
    /// A configured address can't be bound. If the default one can't be bound, the service runs without metrics.
    pub(super) async fn start(
        config: &Config,
        engine: &Arc<Engine>,
        requests: Arc<RequestMeters>,
        process: Process,
        certificate: Option<Arc<PresentedCertificate>>,
    ) -> Result<Self, CliError> {
        Self::listen(config, MetricsService::new(Arc::clone(engine), requests, process, certificate)).await
    }
}

impl<S: Serve> Metrics<S> {
    /// Listens as configured, for `service`.
    ///
    /// # Errors
    /// The errors of [`Metrics::start`].
    pub(super) async fn listen(config: &Config, service: S) -> Result<Self, CliError> {
        let limits = HttpLimits { connections: CONNECTIONS_MAX, ..HttpLimits::default() };
        let mut server = HttpServer::new(Arc::new(service), limits);
        let Some(address) = config.metrics.listen else { return Ok(Self { server, address: None }) };
        match server.listen_tcp(address, None).await {
            Ok(bound) => Ok(Self { server, address: Some(bound) }),
            Err(error) if !config.is_set("metrics.listen") => {
                tracing::warn!(%error, %address, "could not serve metrics; set metrics.listen to a free address");
                Ok(Self { server, address: None })
            }
            Err(error) => {
                let what = format!("cannot listen on {address}");
                let remedy = "Free the port, or name another in metrics.listen.";
                Err(CliError::new(Exit::Failed, what, error.to_string(), remedy))
            }
        }
    }

    /// Stops listening immediately: an aborted scrape is repeated.
    pub(super) async fn shut_down(self) {
        self.server.shutdown(Duration::ZERO).await;
    }
}
