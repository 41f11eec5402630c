//! Names that the machine itself knows: `localhost` and the entries of its hosts file. For webhooks of `dev`, whose
//! receivers run on the same machine; all other names come from DNS.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::Arc;

use super::dns::HostAddresses;
use crate::engine::ports::{BoxFuture, LookupFailure, Requester};

/// Default path of the hosts file.
pub const HOSTS_FILE: &str = "/etc/hosts";

/// A resolver that checks a hosts file before it asks `others`.
pub struct HostsFile {
    path: PathBuf,
    others: Arc<dyn HostAddresses>,
}

impl HostsFile {
    /// Creates a resolver for the file at `path`, which is read at each lookup.
    pub const fn new(path: PathBuf, others: Arc<dyn HostAddresses>) -> Self {
        Self { path, others }
    }

    fn known(&self, host: &str) -> Vec<IpAddr> {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let found = std::fs::read_to_string(&self.path).map(|text| addresses_in(&text, &host)).unwrap_or_default();
        // RFC 6761 6.3: every name below `localhost` is loopback, regardless of the file.
        match host == "localhost" || host.ends_with(".localhost") {
            true => vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
            false => found,
        }
    }
}

/// Returns the addresses of `host` in a hosts file (hosts(5)): an address, then names, up to a `#`.
fn addresses_in(text: &str, host: &str) -> Vec<IpAddr> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let named = lines.filter_map(|line| {
        let mut words = line.split_whitespace();
        let address = words.next()?.parse().ok()?;
        words.any(|name| name.eq_ignore_ascii_case(host)).then_some(address)
    });
    named.collect()
}

impl HostAddresses for HostsFile {
    fn addresses<'a>(
        &'a self,
        host: &'a str,
        requester: Requester,
    ) -> BoxFuture<'a, Result<Vec<IpAddr>, LookupFailure>> {
        let known = self.known(host);
        if known.is_empty() { self.others.addresses(host, requester) } else { Box::pin(std::future::ready(Ok(known))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nobody;

    impl HostAddresses for Nobody {
        fn addresses<'a>(&'a self, _: &'a str, _: Requester) -> BoxFuture<'a, Result<Vec<IpAddr>, LookupFailure>> {
            Box::pin(std::future::ready(Ok(vec!["192.0.2.1".parse().unwrap()])))
        }
    }

    #[tokio::test]
    async fn the_hosts_file_precedes_dns_and_localhost_precedes_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hosts");
        std::fs::write(&path, "# ours\n172.17.0.2\tapp App.internal # the application\nfd00::2 app\nnonsense app\n")
            .unwrap();
        let names = HostsFile::new(path, Arc::new(Nobody));
        for (host, addresses) in [
            ("app", &["172.17.0.2", "fd00::2"][..]),
            ("APP.internal.", &["172.17.0.2"]),
            ("localhost", &["127.0.0.1", "::1"]),
            ("a.localhost", &["127.0.0.1", "::1"]),
            ("other.example", &["192.0.2.1"]),
            ("application", &["192.0.2.1"]),
        ] {
            let found = names.addresses(host, Requester::SERVICE).await.unwrap();
            assert_eq!(found, addresses.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpAddr>>(), "{host}");
        }
    }
}
