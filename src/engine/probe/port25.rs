//! Check that outgoing mail works: connects to port 25 of large providers and reads the greeting.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tokio::task::JoinSet;

use super::addresses;
use crate::engine::ports::probe::{Probe, RecordType};

/// Receivers with highly available servers. The check reads the greeting and quits.
pub const WITNESSES: [&str; 3] = ["gmail.com", "outlook.com", "yahoo.com"];

/// The result of the check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Egress {
    /// This server sent a greeting.
    Greeted {
        /// The server.
        server: SocketAddr,
        /// Greeting.
        line: String,
    },
    /// No server name could be resolved, so no connection was tried.
    Unresolved,
    /// No server sent a greeting, with a reason for each.
    Blocked(Vec<String>),
}

/// Connects to a server of each provider concurrently. One greeting is enough, because a single server may be down.
pub async fn egress(probe: &Arc<dyn Probe>, port: u16, source: Option<IpAddr>) -> Egress {
    let servers = servers(&**probe, port).await;
    if servers.is_empty() {
        return Egress::Unresolved;
    }
    let mut tries = JoinSet::new();
    for server in servers {
        // An address of the other family can't be the source.
        let source = source.filter(|source| source.is_ipv4() == server.is_ipv4());
        let probe = Arc::clone(probe);
        tries.spawn(async move { (server, probe.greeting(server, source).await) });
    }
    let mut failures = Vec::new();
    while let Some(tried) = tries.join_next().await {
        match tried {
            Ok((server, Ok(line))) if line.starts_with("220") => return Egress::Greeted { server, line },
            Ok((server, Ok(line))) => failures.push(format!("{server} says {line:?}")),
            Ok((server, Err(why))) => failures.push(format!("{server}: {why}")),
            Err(_) => {}
        }
    }
    Egress::Blocked(failures)
}

async fn servers(probe: &dyn Probe, port: u16) -> Vec<SocketAddr> {
    let mut servers = Vec::new();
    for domain in WITNESSES {
        let Ok(hosts) = probe.records(domain, RecordType::Mx).await else { continue };
        let Some(host) = hosts.first() else { continue };
        let found = addresses(probe, host).await.unwrap_or_default();
        let permitted = found.into_iter().find(|address| probe.permits(*address));
        servers.extend(permitted.map(|address| SocketAddr::new(address, port)));
    }
    servers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::probe::tests::World;

    fn world() -> World {
        World::default()
            .with("gmail.com", RecordType::Mx, &["mx.gmail.com"])
            .with("mx.gmail.com", RecordType::A, &["192.0.2.1"])
            .with("yahoo.com", RecordType::Mx, &["mx.yahoo.com"])
            .with("mx.yahoo.com", RecordType::A, &["192.0.2.2"])
    }

    #[tokio::test]
    async fn one_greeting_is_enough_and_no_greeting_means_blocked() {
        let blocked: Arc<dyn Probe> = Arc::new(world());
        let Egress::Blocked(why) = egress(&blocked, 25, None).await else { panic!("mail must be blocked") };
        assert_eq!(why.len(), 2);
        let mut open = world();
        open.greetings.insert([192, 0, 2, 2].into(), "220 mx ESMTP".to_owned());
        let open: Arc<dyn Probe> = Arc::new(open);
        assert!(matches!(egress(&open, 25, None).await, Egress::Greeted { line, .. } if line == "220 mx ESMTP"));
    }

    #[tokio::test]
    async fn the_result_is_unknown_if_no_witness_resolves() {
        let probe: Arc<dyn Probe> = Arc::new(World::default());
        assert_eq!(egress(&probe, 25, None).await, Egress::Unresolved);
    }
}
