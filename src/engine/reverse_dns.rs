//! Reverse DNS names of the source addresses: looked up once an hour, for the checklists of all domains.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::timeout;

use super::ports::{Family, LookupFailure, Resolve};
use crate::machine::checklist::dns::SourceFacts;

/// Maximum age of cached names.
const AGE_MAX: Duration = Duration::from_secs(3600);
/// Maximum age of a cached failure.
const FAILURE_AGE_MAX: Duration = Duration::from_secs(300);
/// Total time limit for all lookups.
const PATIENCE: Duration = Duration::from_secs(10);

/// Test of whether receivers can see an address.
type IsPublic = Arc<dyn Fn(IpAddr) -> bool + Send + Sync>;

/// A relay that delivers directly to the recipients' servers.
#[derive(Clone)]
pub struct DirectRelay {
    /// EHLO name.
    pub ehlo: String,
    /// Public source addresses: receivers see them.
    sources: Vec<IpAddr>,
    /// Families with source addresses behind NAT. In these, the addresses of the EHLO name count.
    translated: Vec<Family>,
    is_public: IsPublic,
}

impl fmt::Debug for DirectRelay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ehlo, sources, translated, .. } = self;
        f.debug_struct("DirectRelay")
            .field("ehlo", ehlo)
            .field("sources", sources)
            .field("translated", translated)
            .finish_non_exhaustive()
    }
}

/// Names from the last lookup.
#[derive(Default)]
pub(super) struct ReverseDns(Mutex<Option<ReverseLookup>>);

struct ReverseLookup {
    at: Duration,
    sources: Vec<SourceFacts>,
}

impl ReverseDns {
    /// Returns the names of all source addresses, at `now` of the monotonic clock.
    pub(super) async fn names(
        &self,
        resolver: &Arc<dyn Resolve>,
        relays: &[DirectRelay],
        now: Duration,
    ) -> Vec<SourceFacts> {
        let mut last = self.0.lock().await;
        if let Some(looked) = &*last {
            let is_whole = looked.sources.iter().all(|source| source.names.is_some());
            let age_max = if is_whole { AGE_MAX } else { FAILURE_AGE_MAX };
            if now.saturating_sub(looked.at) < age_max {
                return looked.sources.clone();
            }
        }
        let sources = look(resolver, relays).await;
        *last = Some(ReverseLookup { at: now, sources: sources.clone() });
        sources
    }

    /// Drops the names, so that the next caller looks them up again. A lookup that is running stays.
    pub(super) fn forget(&self) {
        if let Ok(mut last) = self.0.try_lock() {
            *last = None;
        }
    }
}

impl DirectRelay {
    /// Creates a relay with the machine's source addresses. Receivers see those that are public. Without any, all
    /// addresses of the EHLO name count.
    pub fn new(ehlo: String, sources: Vec<IpAddr>, is_public: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> Self {
        let (public, private): (Vec<_>, Vec<_>) = sources.into_iter().partition(|address| is_public(*address));
        let is_unknown = public.is_empty() && private.is_empty();
        let is_translated = |family: &Family| is_unknown || private.iter().any(|own| Family::of(*own) == *family);
        let translated = Family::BOTH.into_iter().filter(is_translated).collect();
        Self { ehlo, sources: public, translated, is_public: Arc::new(is_public) }
    }

    /// Returns the relay's source addresses as receivers see them. `None` if a lookup failed.
    async fn addresses(&self, resolver: &dyn Resolve) -> Option<Vec<IpAddr>> {
        let looked_up = timeout(PATIENCE, addresses_of(resolver, &self.ehlo, &self.translated)).await.ok()?;
        let named = match looked_up {
            Ok(addresses) => addresses,
            Err(LookupFailure::Absent) => Vec::new(),
            Err(LookupFailure::Temporary(_) | LookupFailure::Unasked) => return None,
        };
        let mut addresses = self.sources.clone();
        addresses.extend(named.into_iter().filter(|address| !self.sources.contains(address)));
        Some(addresses)
    }
}

/// Looks up the addresses of a host in these families, and waits for all answers.
///
/// # Errors
/// No family has an address, or a lookup failed.
pub(super) async fn addresses_of(
    resolver: &dyn Resolve,
    host: &str,
    families: &[Family],
) -> Result<Vec<IpAddr>, LookupFailure> {
    let look = async |family| match families.contains(&family) {
        true => resolver.family_addresses_now(host, family).await,
        false => Err(LookupFailure::Absent),
    };
    let (v4, v6) = tokio::join!(look(Family::V4), look(Family::V6));
    let mut found = Vec::new();
    for answer in [v4, v6] {
        match answer {
            Ok(addresses) => found.extend(addresses),
            Err(LookupFailure::Absent) => {}
            Err(failure) => return Err(failure),
        }
    }
    if found.is_empty() { Err(LookupFailure::Absent) } else { Ok(found) }
}

/// Returns the source addresses of all relays as receivers see them. `None` if a lookup failed.
pub(super) async fn source_addresses(resolver: &dyn Resolve, relays: &[DirectRelay]) -> Option<Vec<IpAddr>> {
    let mut sources = Vec::new();
    for relay in relays {
        sources.extend(relay.addresses(resolver).await?);
    }
    Some(sources)
}

async fn look(resolver: &Arc<dyn Resolve>, relays: &[DirectRelay]) -> Vec<SourceFacts> {
    let mut found: Vec<SourceFacts> = Vec::new();
    for relay @ DirectRelay { ehlo, is_public, .. } in relays {
        for address in relay.addresses(&**resolver).await.unwrap_or_else(|| relay.sources.clone()) {
            // No receiver sees an address of a private network, so `doctor` and the alerts skip it too.
            if !is_public(address) {
                continue;
            }
            if found.iter().any(|source| source.address == address && source.ehlo == *ehlo) {
                continue;
            }
            let names = timeout(PATIENCE, confirmed(&**resolver, address)).await;
            found.push(SourceFacts { address, ehlo: ehlo.clone(), names: names.ok().flatten() });
        }
    }
    found
}

/// Returns the names of an address that resolve to it. `None` if a lookup failed.
async fn confirmed(resolver: &dyn Resolve, address: IpAddr) -> Option<Vec<String>> {
    let names = match resolver.ptr_now(address).await {
        Ok(names) => names,
        Err(LookupFailure::Absent) => return Some(Vec::new()),
        Err(LookupFailure::Temporary(_) | LookupFailure::Unasked) => return None,
    };
    let mut confirmed = Vec::new();
    for name in names {
        match resolver.family_addresses_now(&name, Family::of(address)).await {
            Ok(addresses) if addresses.contains(&address) => confirmed.push(name),
            Ok(_) | Err(LookupFailure::Absent) => {}
            Err(LookupFailure::Temporary(_) | LookupFailure::Unasked) => return None,
        }
    }
    Some(confirmed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::dns_facts::tests::Names;

    #[tokio::test]
    async fn a_family_behind_nat_has_the_addresses_of_the_ehlo_name() {
        let names = Names::new([("A mail.example.com", "192.0.2.7|2001:db8::9"), ("AAAA slow.example", "!")]);
        let of = async |ehlo: &str, sources: &[&str]| {
            let sources = sources.iter().map(|text| text.parse().unwrap()).collect();
            let is_public = |address| matches!(address, IpAddr::V6(_));
            let relay = DirectRelay::new(ehlo.to_owned(), sources, is_public);
            let found = source_addresses(&names, &[relay]).await;
            found.map(|found| found.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        let expected = |addresses: &[&str]| Some(addresses.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
        assert_eq!(
            of("mail.example.com", &["172.31.0.5", "2001:db8::2"]).await,
            expected(&["2001:db8::2", "192.0.2.7"])
        );
        assert_eq!(of("mail.example.com", &["172.31.0.5"]).await, expected(&["192.0.2.7"]));
        assert_eq!(of("mail.example.com", &["2001:db8::2"]).await, expected(&["2001:db8::2"]));
        assert_eq!(of("mail.example.com", &[]).await, expected(&["192.0.2.7", "2001:db8::9"]));
        assert_eq!(of("gone.example", &["172.31.0.5", "2001:db8::2"]).await, expected(&["2001:db8::2"]));
        assert_eq!(of("slow.example", &[]).await, None);
        assert_eq!(of("slow.example", &["172.31.0.5"]).await, expected(&[]));
    }

    #[tokio::test]
    async fn an_address_that_no_receiver_sees_is_not_judged() {
        let names = Names::new([("A mail.example.com", "10.0.0.7|192.0.2.7"), ("PTR 192.0.2.7", "mail.example.com")]);
        let resolver: Arc<dyn Resolve> = Arc::new(names);
        let is_public = |address| address != IpAddr::from([10, 0, 0, 7]);
        let relay = DirectRelay::new("mail.example.com".to_owned(), Vec::new(), is_public);
        let seen = look(&resolver, &[relay]).await;
        let addresses: Vec<_> = seen.iter().map(|source| source.address.to_string()).collect();
        assert_eq!(addresses, ["192.0.2.7"]);
    }
}
