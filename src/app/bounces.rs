//! The listeners for returned mail: those of `[bounces]`, and in `dev` one more on loopback, to which the simulator
//! sends its reports.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use super::cli_error::CliError;
use super::config::Config;
use super::exit::Exit;
use crate::engine::receive::Receiver;
use crate::net::bounce_receiver::{listen, listener_config};
use crate::net::dev::reporter::Reporter;
use crate::net::passed_sockets::PassedSockets;
use crate::net::smtp_listener::{ConnectionCap, ListenerConfig, SmtpListener};
use crate::net::tls;
use crate::net::tls_settings::TlsSettings;

/// Maximum number of connections of the simulator, which has few open at once and many that are just closing.
const SIMULATOR_CONNECTIONS: usize = 1024;

/// The running listeners.
pub(super) struct Bounces {
    listeners: Vec<SmtpListener>,
    /// Addresses of the configured listeners.
    pub(super) addresses: Vec<SocketAddr>,
}

impl Bounces {
    /// Starts the listeners, with the certificate `mail` if HTTP has one.
    ///
    /// # Errors
    /// The error for the operator.
    pub(super) async fn start(
        config: &Config,
        receiver: &Arc<Receiver>,
        mail: Option<Arc<TlsSettings>>,
        sockets: &PassedSockets,
        simulator: Option<&Reporter>,
    ) -> Result<Self, CliError> {
        let mut bounces = Self { listeners: Vec::new(), addresses: Vec::new() };
        let addresses: Vec<_> = config.bounces.iter().flat_map(|bounces| &bounces.listen).collect();
        if addresses.is_empty() && simulator.is_none() {
            return Ok(bounces);
        }
        let tls = match mail {
            Some(settings) => settings,
            None => {
                let own = tls::self_signed(config.hostname.as_str());
                let own =
                    own.map_err(|fault| CliError::new(Exit::Failed, "cannot set up TLS", fault.to_string(), ""))?;
                Arc::new(TlsSettings::new(own))
            }
        };
        // All configured listeners share one connection limit.
        let settings = listener_config(config.hostname.as_str(), Arc::clone(&tls));
        for address in addresses {
            let bound = bounces.listen(sockets, *address, settings.clone(), receiver).await?;
            bounces.addresses.push(bound);
        }
        if let Some(reporter) = simulator {
            let settings = listener_config(config.hostname.as_str(), Arc::clone(&tls));
            // The simulator is the only client and limits itself.
            let settings =
                ListenerConfig { gate: ConnectionCap::new(SIMULATOR_CONNECTIONS, SIMULATOR_CONNECTIONS), ..settings };
            let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            reporter.open(bounces.listen(sockets, loopback, settings, receiver).await?);
        }
        Ok(bounces)
    }

    async fn listen(
        &mut self,
        sockets: &PassedSockets,
        address: SocketAddr,
        settings: ListenerConfig,
        receiver: &Arc<Receiver>,
    ) -> Result<SocketAddr, CliError> {
        let socket = sockets.listen(address).await;
        let listener = socket.and_then(|socket| listen(socket, settings, Arc::clone(receiver))).map_err(|error| {
            let what = format!("cannot listen on {address}");
            CliError::new(Exit::Failed, what, error.to_string(), "Free the port, or name another in bounces.listen.")
        })?;
        let bound = listener.local_addr();
        self.listeners.push(listener);
        Ok(bound)
    }

    /// Accepts no new connections, and waits up to `grace` for messages that are being received.
    pub(super) async fn shut_down(self, grace: Duration) {
        let mut ending = tokio::task::JoinSet::new();
        for listener in self.listeners {
            ending.spawn(listener.shut_down(grace));
        }
        while ending.join_next().await.is_some() {}
    }
}
