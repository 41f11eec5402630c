//! The listeners of a standby: HTTP, the operator's socket and the metrics.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::watch;

use super::{Following, failed};
use crate::app::addresses::{self, Addresses};
use crate::app::admin_client::SOCKET_NAME;
use crate::app::certificate::{Certificate, RenewalTask};
use crate::app::cli_error::CliError;
use crate::app::config::Tls;
use crate::app::exit::Exit;
use crate::engine::replica::ReplicaStatus;
use crate::http::metrics::{Process, StandbyMetricsService};
use crate::http::standby::StandbyService;
use crate::net::http_listener::HttpServer;

impl Following<'_> {
    /// Returns the service of the metrics.
    pub(super) fn metrics(&self, status: watch::Receiver<ReplicaStatus>) -> StandbyMetricsService {
        let process = Process { started_at: self.clock.now(), version: env!("CARGO_PKG_VERSION") };
        StandbyMetricsService::new(status, Arc::clone(&self.world.meters), process)
    }

    /// Opens the listeners. Returns the task that reads renewed certificate files.
    pub(super) async fn listen(
        &self,
        http: &mut HttpServer<StandbyService>,
        metrics: Option<SocketAddr>,
    ) -> Result<Option<RenewalTask>, CliError> {
        // An authority's certificate comes with the store, which is not complete yet.
        let certificate = match &self.config.http.tls {
            Tls::Files { certificate, key } => Some(Certificate::of_files(certificate, key)?),
            Tls::Acme(_) | Tls::Off => None,
        };
        let tls = certificate.as_ref().map(|certificate| certificate.http_tls(self.config));
        let mut bound = Vec::new();
        for address in &self.config.http.listen {
            bound.push(http.listen_tcp(*address, tls.clone()).await.map_err(|error| {
                let what = format!("cannot listen on {address}");
                let remedy = "Free the port, or name another in http.listen.";
                CliError::new(Exit::Failed, what, error.to_string(), remedy)
            })?);
        }
        let (none, directory) = (&[][..], &self.config.data_dir);
        let addresses = Addresses { http: &bound, metrics, bounces: none, submission: none, submissions: none };
        addresses::write(directory, &addresses).map_err(|error| failed(&error.to_string()))?;
        http.listen_unix(&self.config.data_dir.join(SOCKET_NAME)).map_err(|error| failed(&error.to_string()))?;
        Ok(certificate.map(Certificate::keep))
    }
}
