//! Whether mail gets out: a connection and a greeting on the port of receivers' servers, from each address that mail
//! leaves from, and from every smarthost.

use std::io;
use std::net::{IpAddr, SocketAddr};

use tokio::task::JoinSet;
use url::Host;

use super::{CONNECTING, Check, Patient, Verdict};
use crate::app::config::{RelayKind, Smarthost};
use crate::net::probe::dns::Asked;
use crate::net::probe::mail::greeting;

/// Receivers whose servers are always there. They are greeted and told goodbye.
const WITNESSES: [&str; 3] = ["gmail.com", "outlook.com", "yahoo.com"];
/// Servers tried at once.
const SERVERS_MAX: usize = 4;

pub(super) async fn checks(patient: &Patient) -> Vec<Check> {
    let mut checks = Vec::new();
    if patient.direct().next().is_some() {
        checks.push(direct(patient).await);
    }
    for relay in &patient.config.relays {
        if let RelayKind::Smarthost(smarthost) = &relay.kind {
            checks.push(smarthost_check(patient, &relay.name, smarthost, relay.source.first().copied()).await);
        }
    }
    checks
}

/// The first greeting of any witness counts: one server may be away.
async fn direct(patient: &Patient) -> Check {
    let port = patient.config.delivery.port;
    let name = format!("port {port}");
    let servers = witnesses(patient).await;
    if servers.is_empty() {
        let seen = format!("the servers of {} could not be looked up, so nothing was tried", WITNESSES.join(", "));
        return Check::new(name, Verdict::Warn, seen, "Correct the name servers first, and try again.");
    }
    let source = patient.direct().flat_map(|relay| relay.source.first().copied()).next();
    let mut tries = JoinSet::new();
    for server in servers {
        // An address of the other family can't be the source.
        let source = source.filter(|source| source.is_ipv4() == server.is_ipv4());
        tries.spawn(async move { (server, greeting(server, source, CONNECTING).await) });
    }
    let mut failures = Vec::new();
    while let Some(tried) = tries.join_next().await {
        match tried {
            Ok((server, Ok(line))) if line.starts_with("220") => {
                return Check::new(name, Verdict::Ok, format!("{server} greets: {line}"), "");
            }
            Ok((server, Ok(line))) => failures.push(format!("{server} says {line:?}")),
            Ok((server, Err(error))) => failures.push(format!("{server}: {}", told(&error))),
            Err(_) => {}
        }
    }
    let remedy = "Have the hoster open outgoing port 25, or send through a smarthost on port 587: a [[relay]] of kind \
                  \"smarthost\".";
    Check::new(name, Verdict::Fail, format!("no server greets: {}", failures.join("; ")), remedy)
}

async fn witnesses(patient: &Patient) -> Vec<SocketAddr> {
    let mut servers = Vec::new();
    for domain in WITNESSES {
        let Ok(told) = patient.ask(domain, Asked::Mx).await else { continue };
        let Some(host) = told.records.first() else { continue };
        let addresses = patient.addresses(host).await.unwrap_or_default();
        let permitted = addresses.into_iter().filter(|address| patient.guard.permits(*address));
        servers.extend(permitted.take(1).map(|address| SocketAddr::new(address, patient.config.delivery.port)));
        if servers.len() >= SERVERS_MAX {
            break;
        }
    }
    servers
}

async fn smarthost_check(patient: &Patient, relay: &str, smarthost: &Smarthost, source: Option<IpAddr>) -> Check {
    let name = format!("relay {relay}");
    let addresses = match &smarthost.host {
        Host::Ipv4(v4) => Ok(vec![IpAddr::V4(*v4)]),
        Host::Ipv6(v6) => Ok(vec![IpAddr::V6(*v6)]),
        Host::Domain(domain) => patient.addresses(domain).await,
    };
    let remedy = format!("Correct host and port of the relay {relay}, or ask its operator.");
    let address = match addresses {
        Ok(addresses) => addresses.first().copied(),
        Err(why) => {
            return Check::new(name, Verdict::Fail, format!("{} has no address: {why}", smarthost.host), remedy);
        }
    };
    let Some(address) = address else {
        return Check::new(name, Verdict::Fail, format!("{} has no address", smarthost.host), remedy);
    };
    let server = SocketAddr::new(address, smarthost.port);
    let is_silent = smarthost.tls == crate::app::config::SmarthostTls::Implicit;
    match greeting(server, source, CONNECTING).await {
        Ok(line) if line.starts_with("220") => Check::new(name, Verdict::Ok, format!("{server} greets: {line}"), ""),
        // Under TLS from the first byte it waits for us, and the connection is all that can be seen in clear.
        Err(error) if is_silent && error.kind() == io::ErrorKind::TimedOut => {
            Check::new(name, Verdict::Ok, format!("{server} takes connections, and waits for TLS"), "")
        }
        Ok(line) => Check::new(name, Verdict::Fail, format!("{server} says {line:?}"), remedy),
        Err(error) => Check::new(name, Verdict::Fail, format!("{server}: {}", told(&error)), remedy),
    }
}

fn told(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::TimedOut => format!("no greeting within {} s", CONNECTING.as_secs()),
        _ => error.to_string(),
    }
}
