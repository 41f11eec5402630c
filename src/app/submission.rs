//! The listeners of SMTP submission: those of `[submission]`, and in `dev` one more on loopback, without TLS.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::addresses::reachable;
use super::certificate::{Certificate, RenewalTask};
use super::cli_error::CliError;
use super::config::{self, Config};
use super::exit::Exit;
use crate::engine::Engine;
use crate::engine::settings::SmtpAddress;
use crate::net::passed_sockets::PassedSockets;
use crate::net::smtp_listener::{ListenerConfig, ListenerTls, SmtpListener};
use crate::net::submission::{DevAccess, Submission as Shared, SubmissionService};
use crate::net::tls_settings::TlsSettings;

/// The running listeners.
pub(super) struct Submission {
    shared: Arc<Shared>,
    engine: Arc<Engine>,
    listeners: Vec<SmtpListener>,
    certificate: Option<RenewalTask>,
    /// Bound addresses of `listen`.
    pub(super) addresses: Vec<SocketAddr>,
    /// Bound addresses of `tls_listen`.
    pub(super) tls_addresses: Vec<SocketAddr>,
}

impl Submission {
    /// Starts listening, with the section's own certificate or with `http`, that of HTTP.
    ///
    /// # Errors
    /// The certificate can't be used, or an address can't be bound.
    pub(super) async fn start(
        config: &Config,
        engine: &Arc<Engine>,
        http: Option<Arc<TlsSettings>>,
        sockets: &PassedSockets,
    ) -> Result<Self, CliError> {
        let section = &config.submission;
        let mut submission = Self {
            shared: Shared::new(Arc::clone(engine), config.hostname.as_str(), section.limits),
            engine: Arc::clone(engine),
            listeners: Vec::new(),
            certificate: None,
            addresses: Vec::new(),
            tls_addresses: Vec::new(),
        };
        if !section.is_on() {
            return Ok(submission);
        }
        let tls = submission.tls(section, http)?;
        for address in &section.listen {
            let settings = submission.shared.listener_config(ListenerTls::StartTls(Arc::clone(&tls)));
            let bound = submission.listen(sockets, *address, settings, "submission.listen").await?;
            submission.addresses.push(bound);
        }
        for address in &section.tls_listen {
            let settings = submission.shared.listener_config(ListenerTls::Implicit(Arc::clone(&tls)));
            let bound = submission.listen(sockets, *address, settings, "submission.tls_listen").await?;
            submission.tls_addresses.push(bound);
        }
        submission.announce(config.hostname.as_str());
        Ok(submission)
    }

    /// Sets the SMTP addresses that the API shows.
    fn announce(&self, host: &str) {
        let port = |addresses: &[SocketAddr]| addresses.first().map(SocketAddr::port);
        let address = SmtpAddress {
            host: host.to_owned(),
            port: port(&self.addresses),
            offers_starttls: true,
            tls_port: port(&self.tls_addresses),
        };
        self.engine.settings.smtp.get_or_init(|| address);
    }

    fn tls(
        &mut self,
        section: &config::Submission,
        http: Option<Arc<TlsSettings>>,
    ) -> Result<Arc<TlsSettings>, CliError> {
        let Some((certificate, key)) = &section.certificate else {
            let missing =
                || CliError::new(Exit::Failed, "cannot set up submission", "no certificate for TLS is configured", "");
            return http.ok_or_else(missing);
        };
        let own = Certificate::of_files(certificate, key)?;
        let settings = Arc::clone(&own.presented.mail);
        self.certificate = Some(own.keep());
        Ok(settings)
    }

    async fn listen(
        &mut self,
        sockets: &PassedSockets,
        address: SocketAddr,
        settings: ListenerConfig,
        key: &str,
    ) -> Result<SocketAddr, CliError> {
        let service = SubmissionService { submission: Arc::clone(&self.shared), dev: None };
        let socket = sockets.listen(address).await;
        let listener = socket.and_then(|socket| SmtpListener::on(socket, settings, Arc::new(service)));
        let listener = listener.map_err(|error| {
            let (what, remedy) =
                (format!("cannot listen on {address}"), format!("Free the port, or set another in {key}."));
            CliError::new(Exit::Failed, what, error.to_string(), remedy)
        })?;
        let bound = listener.local_addr();
        self.listeners.push(listener);
        Ok(bound)
    }

    /// Starts listening for `dev`: at `wanted`, or at a free port of the same host if that is taken and `may_move`.
    /// Returns the bound address.
    ///
    /// # Errors
    /// The address can't be bound.
    pub(super) async fn listen_for_dev(
        &mut self,
        wanted: SocketAddr,
        may_move: bool,
        access: DevAccess,
    ) -> Result<SocketAddr, CliError> {
        let service = SubmissionService { submission: Arc::clone(&self.shared), dev: Some(Arc::new(access)) };
        let service = Arc::new(service);
        let settings = self.shared.dev_listener_config();
        let listener = match SmtpListener::bind(wanted, settings.clone(), Arc::clone(&service) as _).await {
            Err(_) if may_move => SmtpListener::bind(SocketAddr::new(wanted.ip(), 0), settings, service).await,
            bound => bound,
        };
        let listener = listener.map_err(|error| {
            let remedy = "Free the port, or choose another address for dev's SMTP listener.";
            CliError::new(Exit::Failed, format!("cannot listen on {wanted}"), error.to_string(), remedy)
        })?;
        let bound = listener.local_addr();
        self.listeners.push(listener);
        let (host, port) = (reachable(bound).ip().to_string(), Some(bound.port()));
        self.engine.settings.smtp.get_or_init(|| SmtpAddress { host, port, offers_starttls: false, tls_port: None });
        Ok(bound)
    }

    /// Reloads the section's own certificate.
    pub(super) fn reload(&self) {
        if let Some(certificate) = &self.certificate {
            certificate.look();
        }
    }

    /// Accepts no new connections, disconnects idle clients, and waits up to `grace` for messages in progress.
    pub(super) async fn shut_down(self, grace: Duration) {
        if let Some(certificate) = self.certificate {
            certificate.stop();
        }
        let mut ending = tokio::task::JoinSet::new();
        for listener in self.listeners {
            ending.spawn(listener.shut_down(grace));
        }
        while ending.join_next().await.is_some() {}
    }
}
