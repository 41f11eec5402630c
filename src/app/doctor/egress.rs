//! Checks of outgoing mail: a connection and a greeting on port 25 of large providers, from each source address, and
//! from every smarthost.

use std::io;
use std::net::{IpAddr, SocketAddr};

use url::Host;

use super::{CONNECTING, Check, DoctorInputs, Verdict};
use crate::app::config::{RelayKind, Smarthost};
use crate::engine::probe::port25::{Egress, WITNESSES, egress};
use crate::net::plain_error::plain_error;
use crate::net::probe::mail::greeting;

pub(super) async fn checks(patient: &DoctorInputs) -> Vec<Check> {
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

/// Checks direct delivery. The first greeting of any server counts, because one may be down.
async fn direct(patient: &DoctorInputs) -> Check {
    let port = patient.config.delivery.port;
    let name = format!("port {port}");
    let source = patient.direct().flat_map(|relay| relay.source.first().copied()).next();
    match egress(&patient.probe, port, source).await {
        Egress::Greeted { server, line } => Check::new(name, Verdict::Ok, format!("{server} greets: {line}"), ""),
        Egress::Unresolved => {
            let seen = format!(
                "the mail servers of {} could not be looked up, so no connection was tried",
                WITNESSES.join(", ")
            );
            Check::new(name, Verdict::Warn, seen, "Correct the name servers first, and try again.")
        }
        Egress::Blocked(failures) => {
            let remedy = "Ask your hosting provider to open outgoing port 25, or send through a smarthost on port 587: \
                          a [[relay]] of kind \"smarthost\".";
            Check::new(name, Verdict::Fail, format!("no server sent a greeting: {}", failures.join("; ")), remedy)
        }
    }
}

async fn smarthost_check(patient: &DoctorInputs, relay: &str, smarthost: &Smarthost, source: Option<IpAddr>) -> Check {
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
        // With implicit TLS the server waits for the client, so only the connection can be checked.
        Err(error) if is_silent && error.kind() == io::ErrorKind::TimedOut => {
            Check::new(name, Verdict::Ok, format!("{server} accepts connections and expects TLS"), "")
        }
        Ok(line) => Check::new(name, Verdict::Fail, format!("{server} answered {line:?}"), remedy),
        Err(error) => Check::new(name, Verdict::Fail, format!("{server}: {}", failure_text(&error)), remedy),
    }
}

fn failure_text(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::TimedOut => format!("no greeting within {} s", CONNECTING.as_secs()),
        _ => plain_error(error),
    }
}
