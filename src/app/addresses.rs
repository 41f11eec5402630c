//! Where the service listens, the ports that the system chose among them: `addresses.json` in the data directory
//! (contract 8), and what links begin with.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use super::config::{Config, Tls};

/// Its name.
pub(super) const FILE: &str = "addresses.json";

/// The bound addresses.
pub(super) struct Addresses<'a> {
    pub(super) http: &'a [SocketAddr],
    pub(super) metrics: Option<SocketAddr>,
    pub(super) bounces: &'a [SocketAddr],
    /// In the clear until STARTTLS.
    pub(super) submission: &'a [SocketAddr],
    /// TLS from the first byte.
    pub(super) submissions: &'a [SocketAddr],
}

/// Writes the bound addresses, whole or not at all.
///
/// # Errors
/// File system errors.
pub(super) fn write(directory: &Path, addresses: &Addresses<'_>) -> io::Result<()> {
    let texts = |addresses: &[SocketAddr]| addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>();
    let addresses = serde_json::json!({
        "http": texts(addresses.http),
        "metrics": addresses.metrics.map(|address| address.to_string()),
        "bounces": texts(addresses.bounces),
        "submission": texts(addresses.submission),
        "submissions": texts(addresses.submissions),
    });
    let half_made = directory.join(FILE).with_extension("new");
    std::fs::write(&half_made, addresses.to_string())?;
    std::fs::rename(half_made, directory.join(FILE))
}

/// The address of links: what the configuration says, else what a browser on this machine would use.
pub(super) fn public_url(config: &Config, bound: &[SocketAddr]) -> String {
    match (&config.http.public_url, bound.first()) {
        (Some(url), _) => url.to_string(),
        (None, Some(address)) if matches!(config.http.tls, Tls::Off) && address.ip().is_loopback() => {
            format!("http://{address}")
        }
        (None, _) => format!("https://{}", config.hostname),
    }
}
