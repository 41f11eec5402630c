//! Checks that use the network: outgoing mail, reverse DNS names of source addresses, and block lists. Each check has a
//! time limit. A check without a result leaves its alerts unchanged.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::time::timeout;

use crate::domain::alert::{Condition, Severity, Sighting, Subject, SubjectKind};
use crate::engine::Engine;
use crate::engine::ports::probe::Probe;
use crate::engine::probe::block_list::{Health, Listing, health, listing};
use crate::engine::probe::port25::{Egress, WITNESSES, egress};
use crate::engine::probe::reverse::{Reverse, reverse, seen_addresses};
use crate::engine::relay::{Relay, RelayWay};
use crate::store::op::alert::Finding;

/// Time limit of each check: less than the wait of the command that runs them.
const PATIENCE: Duration = Duration::from_secs(40);
/// A direct delivery within this time shows that the port is open.
const RECENT: Duration = Duration::from_secs(3600);

/// Runs the network checks.
pub(super) async fn findings(engine: &Arc<Engine>) -> Vec<Finding> {
    let (Some(sources), Some(notifier)) = (engine.alerts.sources.get(), engine.alerts.notifier()) else {
        return Vec::new();
    };
    let probe = &sources.probe;
    let is_direct = |relay: &&Relay| matches!(relay.way, RelayWay::Mx);
    let direct: Vec<_> = notifier.egress.relays().iter().filter(is_direct).cloned().collect();
    let addresses = timeout(PATIENCE, addresses(&**probe, &direct)).await.ok();
    let (port, reverse, lists) = tokio::join!(
        timeout(PATIENCE, port25(engine, probe, &direct, sources.mail_port)),
        timeout(PATIENCE, of_addresses(&**probe, addresses.as_ref())),
        timeout(PATIENCE, block_lists(engine, &**probe, addresses.as_ref())),
    );
    [port.ok().flatten(), reverse.ok().flatten(), lists.ok().flatten()].into_iter().flatten().collect()
}

/// Returns the addresses that receivers see, each with its EHLO name.
async fn addresses(probe: &dyn Probe, relays: &[Relay]) -> BTreeMap<IpAddr, Arc<str>> {
    let mut found = BTreeMap::new();
    for relay in relays {
        for address in seen_addresses(probe, &relay.sources, &relay.ehlo).await {
            found.entry(address).or_insert_with(|| Arc::clone(&relay.ehlo));
        }
    }
    found
}

async fn port25(engine: &Engine, probe: &Arc<dyn Probe>, direct: &[Relay], port: u16) -> Option<Finding> {
    if direct.is_empty() {
        return Some(Finding::of_service(Condition::Port25Blocked, []));
    }
    let source = direct.iter().find_map(|relay| relay.sources.first().copied());
    let seen = match egress(probe, port, source).await {
        Egress::Greeted { .. } => None,
        // There is no finding if no name resolves.
        Egress::Unresolved => return None,
        Egress::Blocked(failures) => Some(failures.join("; ")),
    };
    let reached = *engine.alerts.reached_directly.lock().unwrap_or_else(PoisonError::into_inner);
    let is_reached = reached.is_some_and(|at| engine.clock.now().since(at) < RECENT);
    let sighting = seen.filter(|_| !is_reached).map(|seen| {
        let summary = format!("No mail server can be reached on port {port}");
        let seen = format!("No server of {} answers: {seen}", WITNESSES.join(", "));
        Sighting::new(Condition::Port25Blocked, Severity::Critical, summary, seen)
    });
    Some(Finding::of_service(Condition::Port25Blocked, sighting))
}

async fn of_addresses(probe: &dyn Probe, addresses: Option<&BTreeMap<IpAddr, Arc<str>>>) -> Option<Finding> {
    let mut finding = Finding::of_service(Condition::ReverseDns, []);
    for (address, ehlo) in addresses? {
        let found = reverse(probe, *address, ehlo).await;
        let severity = match found {
            Reverse::LeadsBack => continue,
            Reverse::Unknown(_) => {
                finding.unknown.push(address.to_string());
                continue;
            }
            Reverse::Nameless | Reverse::NotConfirmed(_) => Severity::Critical,
            Reverse::OtherName(_) => Severity::Warning,
        };
        let seen = format!("{}.", found.describe(*address, ehlo));
        let summary = format!("The reverse name of {address} is not {ehlo}");
        let sighting = Sighting::new(Condition::ReverseDns, severity, summary, seen);
        finding.found.push(sighting.of(Subject::named(SubjectKind::Address, address)));
    }
    Some(finding)
}

async fn block_lists(
    engine: &Engine,
    probe: &dyn Probe,
    addresses: Option<&BTreeMap<IpAddr, Arc<str>>>,
) -> Option<Finding> {
    let addresses = addresses?;
    let zones = &engine.settings.alerts.block_lists;
    let (mut working, mut is_any_broken) = (Vec::new(), false);
    for zone in zones {
        match health(probe, zone.as_str()).await {
            Health::Works => working.push(zone.as_str()),
            Health::Broken(why) => {
                is_any_broken = true;
                tracing::warn!(zone = zone.as_str(), why, "a block list can't be used; its answers are ignored");
            }
        }
    }
    let mut finding = Finding::of_service(Condition::Blocklisted, []);
    for address in addresses.keys() {
        let (mut on, mut is_unknown) = (Vec::new(), is_any_broken);
        for zone in &working {
            match listing(probe, zone, *address).await {
                Listing::Listed(codes) => on.push(format!("{zone} ({})", codes.join(", "))),
                Listing::Clear => {}
                Listing::Unknown(_) => is_unknown = true,
            }
        }
        if !on.is_empty() {
            let summary = format!("{address} is on a block list");
            let seen = format!("{address} is on {}.", on.join(", "));
            let sighting = Sighting::new(Condition::Blocklisted, Severity::Critical, summary, seen);
            finding.found.push(sighting.of(Subject::named(SubjectKind::Address, address)));
        } else if is_unknown {
            finding.unknown.push(address.to_string());
        }
    }
    Some(finding)
}
