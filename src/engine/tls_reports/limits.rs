//! Limits of TLS reports for each receiver. A domain may name any address or host as the receiver of its reports, and
//! nobody asks the receiver. So names in the DNS must not be able to direct many reports at one that does not want
//! them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::domain::hostname::DomainName;
use crate::smtp::tls_rpt::Destination;

/// Maximum number of reports to one address on a day, about domains of other registrants.
pub(super) const OF_ADDRESS_MAX: u32 = 20;
/// Maximum number of reports to all receivers of one registrable domain on a day, about domains of other registrants.
/// Services that read reports for many domains use one address for each.
const OF_RECEIVER_MAX: u32 = 200;

/// Counts of the reports that were sent about one day. They are not stored, so they begin at zero after a restart.
#[derive(Debug, Default)]
pub(in crate::engine) struct ReportLimits(Mutex<DayCounts>);

#[derive(Debug, Default)]
struct DayCounts {
    day: u32,
    sent: HashMap<String, u32>,
}

impl ReportLimits {
    /// Whether a receiver may get another report of `day` about `domain`.
    pub(super) fn allow(&self, day: u32, domain: &DomainName, to: &Destination) -> bool {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = |name: &str| if counts.day == day { counts.sent.get(name).copied().unwrap_or(0) } else { 0 };
        counted(domain, to).iter().all(|(name, most)| sent(name) < *most)
    }

    /// Counts a report that was sent.
    pub(super) fn count(&self, day: u32, domain: &DomainName, to: &Destination) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.day < day {
            *counts = DayCounts { day, sent: HashMap::new() };
        }
        for (name, _) in counted(domain, to) {
            *counts.sent.entry(name).or_default() += 1;
        }
    }
}

/// Returns the names under which a report counts, with their limits; none if the receiver belongs to the registrant of
/// the domain.
fn counted(domain: &DomainName, to: &Destination) -> Vec<(String, u32)> {
    let (host, address) = match to {
        Destination::Mail(address) => (Some(address.domain().clone()), Some(address.match_key())),
        Destination::Https(url) => (url.url().host_str().and_then(|host| host.parse().ok()), None),
    };
    if host.as_ref().is_some_and(|host: &DomainName| host.is_aligned_with(domain)) {
        return Vec::new();
    }
    let receiver = host.map(|host| (host.registrable().to_owned(), OF_RECEIVER_MAX));
    receiver.into_iter().chain(address.map(|address| (address, OF_ADDRESS_MAX))).collect()
}
