//! Checks that bounces are received: the host of return paths must lead to this server.

use super::{Check, DoctorInputs, Verdict};
use crate::net::probe::dns::{ProbeType, ServerError};

const NAME: &str = "bounces";

pub(super) async fn checks(patient: &DoctorInputs) -> Vec<Check> {
    let config = &patient.config;
    if config.bounces.is_none() {
        let seen = "[bounces] is not configured: bounces and complaints that arrive by email will be missed";
        return vec![Check::new(
            NAME,
            Verdict::Warn,
            seen,
            "Add [bounces] with a host, and publish an MX record of it.",
        )];
    }
    let (host, own) = (config.bounce_host().as_str(), config.hostname.as_str());
    let publish = format!("Publish an MX record of {host}: 10 {own}.");
    let servers = match patient.ask(host, ProbeType::Mx).await {
        Ok(answer) => answer.records,
        // Without an MX record the host itself receives mail (RFC 5321 5.1).
        Err(ServerError::Absent) => vec![host.to_owned()],
        Err(ServerError::Failed(why)) => {
            let seen = format!("{host} could not be looked up: {why}");
            return vec![Check::new(NAME, Verdict::Warn, seen, "Try again.")];
        }
    };
    let (here, mut there) = (patient.addresses(own).await.unwrap_or_default(), Vec::new());
    for server in &servers {
        there.extend(patient.addresses(server).await.unwrap_or_default());
    }
    let shown = servers.join(", ");
    let leads_here = servers.iter().any(|server| server == own) || there.iter().any(|address| here.contains(address));
    vec![match (leads_here, there.is_empty()) {
        (_, true) => {
            let seen = format!("{host} is served by {shown}, which has no address");
            Check::new(NAME, Verdict::Fail, seen, publish)
        }
        (true, _) => Check::new(NAME, Verdict::Ok, format!("{host} is served by {shown}"), ""),
        (false, _) => {
            let seen = format!("{host} is served by {shown}, which does not resolve to {own}");
            Check::new(NAME, Verdict::Warn, seen, publish)
        }
    }]
}
