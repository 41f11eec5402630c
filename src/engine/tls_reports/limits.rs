//! Limits of TLS reports for each receiver. A domain may name any address or host as the receiver of its reports, and
//! nobody asks the receiver. So names in the DNS must not be able to direct many reports at one that does not want
//! them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use crate::domain::hostname::DomainName;
use crate::smtp::tls_rpt::Destination;

/// Maximum number of reports to one address on a day, about domains of other registrants.
pub(super) const OF_ADDRESS_MAX: usize = 20;
/// Maximum number of reports to all receivers of one registrant on a day, about domains of other registrants.
/// Services that read reports for many domains use one address for each.
pub(super) const OF_RECEIVER_MAX: usize = 200;

/// Receivers of reports by day. They are not stored, so they begin at zero after a restart.
#[derive(Debug, Default)]
pub(in crate::engine) struct ReportLimits(Mutex<BTreeMap<u32, Receivers>>);

/// The domains about which each receiver has got reports.
type Receivers = HashMap<String, HashSet<DomainName>>;

impl ReportLimits {
    /// Returns whether a receiver may get the report of `day` about `domain`. It is counted before it is sent, once for
    /// all tries.
    pub(super) fn admit(&self, day: u32, domain: &DomainName, to: &Destination) -> bool {
        let mut days = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A report is tried for a day, so those of the day before may still be under way.
        days.retain(|known, _| known.abs_diff(day) <= 1);
        let receivers = days.entry(day).or_default();
        let names = counted(domain, to);
        let has_room = |(name, most): &(String, usize)| {
            receivers.get(name).is_none_or(|domains| domains.len() < *most || domains.contains(domain))
        };
        let is_admitted = names.iter().all(has_room);
        if is_admitted {
            for (name, _) in names {
                receivers.entry(name).or_default().insert(domain.clone());
            }
        }
        is_admitted
    }
}

/// Returns the names under which a report counts, with their limits; none if the receiver belongs to the registrant of
/// the domain.
fn counted(domain: &DomainName, to: &Destination) -> Vec<(String, usize)> {
    let (host, address) = match to {
        Destination::Mail(address) => (address.domain().as_str(), Some(address.match_key())),
        Destination::Https(url) => (url.url().host_str().unwrap_or_default(), None),
    };
    // The host of a URL may be an IP address.
    let receiver = match host.parse::<DomainName>() {
        Ok(host) if host.is_aligned_with(domain) => return Vec::new(),
        Ok(host) => host.registrant_domain().to_owned(),
        Err(_) => host.to_owned(),
    };
    let of_address = address.map(|address| (address, OF_ADDRESS_MAX));
    of_address.into_iter().chain([(receiver, OF_RECEIVER_MAX)]).collect()
}
