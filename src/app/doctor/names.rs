//! Checks of names: whether the resolver answers and validates, whether this server's name resolves to it, and whether
//! its addresses resolve back to the name. Large receivers refuse servers without a matching reverse name.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::{Check, DoctorInputs, Verdict};
use crate::engine::probe;
use crate::engine::probe::reverse::{Reverse, seen_addresses};
use crate::net::probe::dns::{ProbeType, ServerAnswer, ServerError};

/// Checks whether names can be looked up, and whether answers are validated.
pub(super) async fn resolver(patient: &DoctorInputs) -> Vec<Check> {
    const NAME: &str = "resolver";
    match patient.ask(".", ProbeType::Soa).await {
        Ok(answer) => {
            let server = answer.server;
            let validation = validation(patient, &answer);
            vec![Check::new(NAME, Verdict::Ok, format!("{server} answers"), ""), validation]
        }
        // "No such record" is an answer too: a server for a few zones does not know the root.
        Err(ServerError::Absent) => {
            let seen = "the name servers answer, but do not know the root of the DNS";
            vec![Check::new(NAME, Verdict::Warn, seen, "Set dns.servers to servers that resolve every name.")]
        }
        Err(ServerError::Failed(why)) => {
            vec![Check::new(NAME, Verdict::Fail, why, "Set dns.servers to servers that answer, as \"ip:port\".")]
        }
    }
}

/// Checks whether answers are validated. The service validates from its trust anchor, and the servers must not prevent
/// it.
fn validation(patient: &DoctorInputs, answer: &ServerAnswer) -> Check {
    const NAME: &str = "DNSSEC";
    let server = answer.server;
    let Some(anchor) = &patient.config.dns.trust_anchor else {
        let theirs = if answer.is_validated { "validates (AD)" } else { "does not report validation (no AD)" };
        let seen = format!("dns.trust_anchor is not set, so DANE is not used; {server} {theirs}");
        let remedy = "Set dns.trust_anchor to the root's keys, such as /usr/share/dns/root.key (dns-root-data).";
        return Check::new(NAME, Verdict::Warn, seen, remedy);
    };
    let anchor = anchor.display();
    match answer.signed {
        Some(_) => {
            let seen = format!("{server} returns signatures, and the service validates them from {anchor}");
            Check::new(NAME, Verdict::Ok, seen, "")
        }
        None => {
            let seen =
                format!("{server} returns the root zone without signatures, so nothing can be validated from {anchor}");
            Check::new(NAME, Verdict::Warn, seen, "Set dns.servers to servers that support DNSSEC.")
        }
    }
}

/// Checks whether this server's names resolve to its addresses.
pub(super) async fn forward(patient: &DoctorInputs) -> Vec<Check> {
    let config = &patient.config;
    let mut checks = vec![leads_here(patient, "forward DNS", config.hostname.as_str(), None).await];
    let mut names = BTreeSet::new();
    for relay in patient.direct() {
        let ehlo = patient.ehlo(relay).as_str();
        if names.insert(ehlo) {
            checks.push(leads_here(patient, "EHLO name", ehlo, Some(&patient.sources(relay))).await);
        }
    }
    checks.push(own_spf(patient).await);
    checks
}

async fn leads_here(patient: &DoctorInputs, check: &str, name: &str, sources: Option<&[IpAddr]>) -> Check {
    let publish = format!("Publish an A record of {name} with this server's public address.");
    let addresses = match patient.addresses(name).await {
        Ok(addresses) => addresses,
        Err(ServerError::Absent) => return Check::new(check, Verdict::Fail, format!("{name} has no address"), publish),
        Err(ServerError::Failed(why)) => {
            return Check::new(check, Verdict::Warn, format!("{name} could not be looked up: {why}"), "Try again.");
        }
    };
    let shown = list(&addresses);
    if let Some(inside) = addresses.iter().find(|address| !patient.guard.permits(**address)) {
        let seen = format!("{name} resolves to {inside}, which is not reachable from outside");
        return Check::new(check, Verdict::Fail, seen, publish);
    }
    // Behind NAT, this machine does not know the address that receivers see.
    let public: Vec<_> =
        sources.unwrap_or_default().iter().copied().filter(|address| patient.guard.permits(*address)).collect();
    let strangers: Vec<_> = public.iter().copied().filter(|address| !addresses.contains(address)).collect();
    if strangers.is_empty() {
        return Check::new(check, Verdict::Ok, format!("{name} resolves to {shown}"), "");
    }
    let seen = format!("{name} resolves to {shown}, but mail is sent from {}", list(&strangers));
    let remedy = format!("Publish an address record of {name} for {}, or set source of the relay.", list(&strangers));
    Check::new(check, Verdict::Warn, seen, remedy)
}

/// Checks the SPF record of the EHLO name, which receivers use for bounces, because bounces have no sender (RFC 7208
/// 2.4).
async fn own_spf(patient: &DoctorInputs) -> Check {
    let host = patient.config.hostname.as_str();
    let name = format!("SPF of {host}");
    let publish = format!("Publish a TXT record of {host}: v=spf1 a -all");
    match patient.ask(host, ProbeType::Txt).await {
        Ok(answer) => {
            let found: Vec<_> = answer.records.into_iter().filter(|text| text.starts_with("v=spf1")).collect();
            match found.as_slice() {
                [] => Check::new(name, Verdict::Warn, "no SPF record found", publish),
                [one] => Check::new(name, Verdict::Ok, one, ""),
                several => {
                    let seen = format!("{} SPF records found, which is an error (RFC 7208 4.5)", several.len());
                    Check::new(name, Verdict::Fail, seen, "Keep only one.")
                }
            }
        }
        Err(ServerError::Absent) => Check::new(name, Verdict::Warn, "no SPF record found", publish),
        Err(ServerError::Failed(why)) => Check::new(name, Verdict::Warn, why, "Try again."),
    }
}

/// Checks whether each source address resolves back to the name in EHLO.
pub(super) async fn reverse(patient: &DoctorInputs) -> Vec<Check> {
    let mut seen = BTreeSet::new();
    let mut checks = Vec::new();
    for relay in patient.direct() {
        let ehlo = patient.ehlo(relay).as_str();
        let addresses = seen_addresses(&*patient.probe, &relay.source, ehlo).await;
        if addresses.is_empty() {
            let inside = patient.sources(relay);
            let from = if inside.is_empty() { "an unknown address".to_owned() } else { list(&inside) };
            let what =
                format!("mail is sent from {from}, and this machine does not know the address that receivers see");
            checks.push(Check::new("reverse DNS", Verdict::Warn, what, "Set source to this server's public address."));
        }
        for address in addresses {
            if seen.insert(address) {
                checks.push(leads_back(patient, address, ehlo).await);
            }
        }
    }
    checks
}

async fn leads_back(patient: &DoctorInputs, address: IpAddr, ehlo: &str) -> Check {
    const NAME: &str = "reverse DNS";
    let hoster = format!("Ask the provider of {address} to set its reverse name (PTR) to {ehlo}.");
    let found = probe::reverse::reverse(&*patient.probe, address, ehlo).await;
    let (verdict, remedy) = match found {
        Reverse::LeadsBack => (Verdict::Ok, String::new()),
        Reverse::Nameless | Reverse::NotConfirmed(_) => (Verdict::Fail, hoster),
        Reverse::OtherName(_) => (Verdict::Warn, hoster),
        Reverse::Unknown(_) => (Verdict::Warn, "Try again.".to_owned()),
    };
    Check::new(NAME, verdict, found.describe(address, ehlo), remedy)
}

fn list(addresses: &[IpAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
