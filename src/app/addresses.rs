//! Where the service listens, the ports that the system chose among them: `addresses.json` in the data directory
//! (contract 8), and what links begin with.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use super::config::{Config, Tls};

/// Its name.
pub(super) const FILE: &str = "addresses.json";

/// Writes the bound addresses, whole or not at all.
///
/// # Errors
/// Those of the file system.
pub(super) fn write(
    directory: &Path,
    http: &[SocketAddr],
    metrics: Option<SocketAddr>,
    bounces: &[SocketAddr],
) -> io::Result<()> {
    let texts = |addresses: &[SocketAddr]| addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>();
    let metrics = metrics.map(|address| address.to_string());
    let addresses = serde_json::json!({ "http": texts(http), "metrics": metrics, "bounces": texts(bounces) });
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
