//! Facts that other parts of the program hand to the checks of alerts.

use std::sync::Arc;

use crate::base::time::Timestamp;
use crate::engine::ports::probe::Probe;

/// The facts. Each function is asked at every check.
pub struct Sources {
    /// Looks into the network.
    pub probe: Arc<dyn Probe>,
    /// The end of the TLS certificate that is presented; none where there is none from an authority.
    pub certificate_until: Box<dyn Fn() -> Option<Timestamp> + Send + Sync>,
    /// The port of receivers' mail servers.
    pub mail_port: u16,
}
