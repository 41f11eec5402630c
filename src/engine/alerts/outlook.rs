//! Facts that other parts of the program provide to the checks of alerts.

use std::sync::Arc;

use crate::base::time::Timestamp;
use crate::engine::ports::probe::Probe;

/// Facts from outside the engine. Every check calls these functions.
pub struct Sources {
    /// Network and DNS checks.
    pub probe: Arc<dyn Probe>,
    /// Returns the end of the TLS certificate in use; `None` if no authority issued one.
    pub certificate_until: Box<dyn Fn() -> Option<Timestamp> + Send + Sync>,
    /// Port of the receivers' mail servers.
    pub mail_port: u16,
}
