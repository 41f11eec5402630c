//! The addresses on which the service listens, with the ports that the system chose: `addresses.json` in the data
//! directory (contract 8). Also the base URL of links.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use super::config::{Config, Tls};

/// Name of the file.
pub(super) const FILE: &str = "addresses.json";

/// The bound addresses.
pub(super) struct Addresses<'a> {
    pub(super) http: &'a [SocketAddr],
    pub(super) metrics: Option<SocketAddr>,
    pub(super) bounces: &'a [SocketAddr],
    /// Without TLS until STARTTLS.
    pub(super) submission: &'a [SocketAddr],
    /// TLS from the first byte.
    pub(super) submissions: &'a [SocketAddr],
}

/// Writes the bound addresses atomically.
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

/// Returns the base URL of links: the configured one, or the one that a browser on this machine would use.
pub(super) fn public_url(config: &Config, bound: &[SocketAddr]) -> String {
    match (&config.http.public_url, bound.first()) {
        (Some(url), _) => url.to_string(),
        (None, Some(address)) if matches!(config.http.tls, Tls::Off) && address.ip().is_loopback() => {
            format!("http://{address}")
        }
        (None, _) => format!("https://{}", config.hostname),
    }
}
