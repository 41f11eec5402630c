//! The addresses on which the service listens, with the ports that the system chose: `addresses.json` in the data
//! directory (contract 8). Also the base URL of links.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use super::config::{Config, Tls};
use crate::store::error::is_full;

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

/// Writes the bound addresses atomically. On a full disk the service must start nevertheless, to record outcomes: then
/// the file is removed, because it would name the addresses of an earlier start.
///
/// # Errors
/// File system errors other than a full disk.
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
    let written = std::fs::write(&half_made, addresses.to_string());
    match written.and_then(|()| std::fs::rename(&half_made, directory.join(FILE))) {
        Ok(()) => Ok(()),
        Err(error) if is_full(&error) => {
            tracing::error!("disk full: starting without {FILE}, which names the bound addresses; free space");
            remove(&half_made)?;
            remove(&directory.join(FILE))
        }
        Err(error) => Err(error),
    }
}

fn remove(file: &Path) -> io::Result<()> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Returns an address at which this machine reaches a listener on all addresses.
pub(super) fn reachable(address: SocketAddr) -> SocketAddr {
    if !address.ip().is_unspecified() {
        return address;
    }
    SocketAddr::from(([127, 0, 0, 1], address.port()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_prevents_no_start_and_leaves_no_outdated_addresses() {
        let directory = tempfile::tempdir().unwrap();
        let addresses = Addresses { http: &[], metrics: None, bounces: &[], submission: &[], submissions: &[] };
        write(directory.path(), &addresses).unwrap();
        assert!(directory.path().join(FILE).exists());
        // Writing to this device fails as on a full disk.
        std::os::unix::fs::symlink("/dev/full", directory.path().join(FILE).with_extension("new")).unwrap();
        write(directory.path(), &addresses).unwrap();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
