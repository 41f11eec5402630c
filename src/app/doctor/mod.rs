//! `postrider doctor`: checks for problems with mail, as seen from this machine (contract 8). Each check reports its
//! finding and the remedy. All run at the same time, each within some seconds.
//!
//! It uses the configured `dns.servers`, `delivery.port` and `network.allow`. It changes nothing, except that checking
//! a domain's records updates their status.

mod alerts;
mod bounces;
mod certificate;
mod clock;
mod domains;
mod egress;
pub mod in_service;
mod local;
mod names;
mod policy;
mod replica;
mod submission;
mod together;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use self::together::join_in_order;
use super::cli_error::CliError;
use super::config::{Config, Relay, RelayKind};
use super::runtime;
use crate::domain::hostname::DomainName;
use crate::engine::ports::BoxFuture;
use crate::engine::ports::probe::Probe;
use crate::net::network_guard::Guard;
use crate::net::probe::dns::{DnsProbe, ProbeType, ServerAnswer, ServerError};
use crate::net::probe::network::NetworkProbe;
use crate::net::source_address;

/// Time limit of one check.
const PATIENCE: Duration = Duration::from_secs(12);
/// Time limit of one connection.
const CONNECTING: Duration = Duration::from_secs(5);

/// Verdict of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verdict {
    /// No problem was found.
    Ok,
    /// Mail is sent, but some of it will be refused or lost sooner or later; or the check had no result.
    Warn,
    /// Mail is not sent, or data is in danger.
    Fail,
}

impl Verdict {
    /// Returns the word that is printed.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Warn => "WARN",
            Self::Fail => "FAIL",
        }
    }
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// The name of the check.
    pub name: String,
    /// Verdict of the check.
    pub verdict: Verdict,
    /// The facts that were found.
    pub seen: String,
    /// The remedy; empty if there is nothing to do.
    pub remedy: String,
}

impl Check {
    /// Creates the result of a check.
    pub fn new(name: impl Into<String>, verdict: Verdict, seen: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name: name.into(), verdict, seen: seen.into(), remedy: remedy.into() }
    }

    /// Returns whether the check failed.
    pub const fn is_failure(&self) -> bool {
        matches!(self.verdict, Verdict::Fail)
    }
}

/// Inputs of the checks.
struct DoctorInputs {
    config: Config,
    dns: Result<DnsProbe, String>,
    guard: Guard,
    probe: Arc<dyn Probe>,
}

impl DoctorInputs {
    async fn ask(&self, name: &str, asked: ProbeType) -> Result<ServerAnswer, ServerError> {
        match &self.dns {
            Ok(dns) => dns.ask(name, asked).await,
            Err(why) => Err(ServerError::Failed(why.clone())),
        }
    }

    /// Returns the addresses of a name, IPv4 first. A failed lookup of one family is an error only if the other has no
    /// addresses.
    async fn addresses(&self, name: &str) -> Result<Vec<IpAddr>, ServerError> {
        let (v4, v6) = tokio::join!(self.ask(name, ProbeType::A), self.ask(name, ProbeType::Aaaa));
        let of = |answer: &Result<ServerAnswer, ServerError>| -> Vec<IpAddr> {
            answer.iter().flat_map(|answer| &answer.records).filter_map(|text| text.parse().ok()).collect()
        };
        let addresses = [of(&v4), of(&v6)].concat();
        match (addresses.is_empty(), v4, v6) {
            (false, _, _) => Ok(addresses),
            (true, Err(failed @ ServerError::Failed(_)), _) | (true, _, Err(failed @ ServerError::Failed(_))) => {
                Err(failed)
            }
            (true, _, _) => Err(ServerError::Absent),
        }
    }

    /// Returns the relays that deliver directly to receivers' servers.
    fn direct(&self) -> impl Iterator<Item = &Relay> {
        self.config.relays.iter().filter(|relay| relay.kind == RelayKind::Mx)
    }

    /// Returns the source addresses of a relay: its own, or those that the system chooses.
    fn sources(&self, relay: &Relay) -> Vec<IpAddr> {
        if relay.source.is_empty() { source_address::sources() } else { relay.source.clone() }
    }

    fn ehlo<'a>(&'a self, relay: &'a Relay) -> &'a DomainName {
        relay.ehlo.as_ref().unwrap_or(&self.config.hostname)
    }
}

/// Runs every check of `config`, ordered from this machine to the receivers.
///
/// # Errors
/// No check could be run.
pub fn run(config: &Config) -> Result<Vec<Check>, CliError> {
    let patient = Arc::new(DoctorInputs {
        config: config.clone(),
        dns: DnsProbe::new(&config.dns.servers),
        guard: Guard::new(config.network.allow.clone()),
        probe: probe(config),
    });
    let runtime = runtime::build()?;
    let checks = runtime.block_on(examine(&patient));
    // A system lookup that hangs must not delay the answer.
    runtime.shutdown_background();
    Ok(checks)
}

/// Returns the network probe for the checks that alerts also use.
fn probe(config: &Config) -> Arc<dyn Probe> {
    let guard = Arc::new(Guard::new(config.network.allow.clone()));
    Arc::new(NetworkProbe::new(&config.dns.servers, guard))
}

async fn examine(patient: &Arc<DoctorInputs>) -> Vec<Check> {
    let checks: Vec<(&str, BoxFuture<'_, Vec<Check>>)> = vec![
        ("configuration", Box::pin(async { local::checks(patient) })),
        ("clock", Box::pin(clock::checks(patient))),
        ("resolver", Box::pin(names::resolver(patient))),
        ("forward DNS", Box::pin(names::forward(patient))),
        ("reverse DNS", Box::pin(names::reverse(patient))),
        ("port 25", Box::pin(egress::checks(patient))),
        ("bounces", Box::pin(bounces::checks(patient))),
        ("submission", Box::pin(submission::checks(patient))),
        ("MTA-STS", Box::pin(policy::checks(patient))),
        ("alerts", Box::pin(alerts::checks(patient))),
        ("block lists", Box::pin(alerts::block_lists(patient))),
        ("domains", Box::pin(domains::checks(patient))),
        ("replica access", Box::pin(replica::access(patient))),
        ("replica conditional writes", Box::pin(replica::conditional_writes(patient))),
        ("replica clock", Box::pin(replica::clock(patient))),
        ("replica versioning", Box::pin(replica::versioning(patient))),
        ("replica lifecycle", Box::pin(replica::lifecycle(patient))),
        ("replica speed", Box::pin(replica::speed(patient))),
        ("replica objects", Box::pin(replica::objects(patient))),
    ];
    let bounded = checks.into_iter().map(|(name, check)| async move {
        tokio::time::timeout(PATIENCE, check).await.unwrap_or_else(|_| {
            let seen = format!("check timed out after {} s", PATIENCE.as_secs());
            vec![Check::new(name, Verdict::Warn, seen, "Check whether the network drops packets, and try again.")]
        })
    });
    join_in_order(bounded).await.concat()
}

#[cfg(test)]
mod tests;
