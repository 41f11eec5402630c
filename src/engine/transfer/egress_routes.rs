//! Egress routes: the relays, and the capture of mail by `dev`.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::domain::address::Address;
use crate::engine::relay::Relay;

/// Returns the capturing receiver for an address, if its mail is captured.
pub type CaptureRoute = dyn Fn(&Address) -> Option<SocketAddr> + Send + Sync;

/// The relays, and the capture.
#[derive(Clone)]
pub struct EgressRoutes {
    /// The relays; at least one for each stream.
    pub relays: Vec<Relay>,
    /// Port of the receivers' servers.
    pub port: u16,
    /// Captured mail.
    pub capture: Option<Arc<CaptureRoute>>,
}
