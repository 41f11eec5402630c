//! What the engine needs of the configuration, already checked.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::domain::account::QuotaLimits;
use crate::domain::return_path::ReturnPathKey;

/// The engine's settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name we greet with, and the host of links.
    pub hostname: String,
    /// Where return paths stand: the bounce host, or the hostname where there is none.
    pub bounce_host: String,
    /// The key that authenticates return paths.
    pub return_path_key: ReturnPathKey,
    /// The public address of the API, known once it is served.
    pub public_url: Arc<OnceLock<String>>,
    /// How long a message is tried (contract 6).
    pub queue_lifetime: Duration,
    /// Requests a minute and key.
    pub requests_per_minute: u32,
    /// The quota of new accounts.
    pub quota: QuotaLimits,
    /// Connections to mail servers at once.
    pub max_connections: usize,
    /// Below this many free octets no message is accepted.
    pub min_free_octets: u64,
    /// Threads that compose and sign.
    pub signing_threads: usize,
}
