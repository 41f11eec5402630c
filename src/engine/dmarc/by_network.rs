//! The sources of a range of days, grouped by network. A network's sums are calculated only on request: a range may
//! have hundreds of thousands of networks, and a page shows only the largest.

use std::collections::HashSet;
use std::sync::Arc;

use super::sums::{Stretch, add_signers};
use crate::domain::dmarc_source::{DmarcCounts, SourceNetwork};
use crate::domain::hostname::DomainName;
use crate::store::op::dmarc::SIGNERS_SHOWN;
use crate::store::row::dmarc::DmarcSourceSums;
use crate::store::schema::dmarc::ReporterKey;

/// Position of a source's sums in one of the stretches.
#[derive(Clone, Copy)]
struct Place {
    /// [`SourceNetwork::number`] of its network.
    network: u64,
    stretch: u32,
    source: u32,
}

/// The sources of a range.
pub(super) struct SourcesByNetwork {
    stretches: Vec<Arc<Stretch>>,
    /// Places of the sources, by network, and for each network in the order of the days.
    places: Vec<Place>,
}

impl SourcesByNetwork {
    /// Groups the sources of these stretches, which are in the order of their days, without those that only `ignored`
    /// reporters list.
    pub(super) fn new(stretches: Vec<Arc<Stretch>>, ignored: &HashSet<ReporterKey>) -> Self {
        let mut places = Vec::with_capacity(stretches.iter().map(|stretch| stretch.sources.len()).sum());
        for (stretch, found) in (0..).zip(&stretches) {
            for (source, sums) in (0..).zip(&found.sources) {
                if ignored.is_empty() || !ignored.contains(&sums.reporter) {
                    places.push(Place { network: sums.network.number(), stretch, source });
                }
            }
        }
        // The sort is stable, and fast: each stretch is in this order already.
        places.sort_by_key(|place| place.network);
        Self { stretches, places }
    }

    /// Returns the stretches in the order of their days.
    pub(super) fn stretches(&self) -> impl Iterator<Item = &Stretch> {
        self.stretches.iter().map(|stretch| &**stretch)
    }

    /// Returns the sources in the order of their networks.
    pub(super) fn iter(&self) -> impl Iterator<Item = SourceGroup<'_>> {
        let groups = self.places.chunk_by(|one, next| one.network == next.network);
        groups.map(|places| SourceGroup { stretches: &self.stretches, places })
    }

    /// Returns the source with this network.
    pub(super) fn get(&self, network: SourceNetwork) -> Option<SourceGroup<'_>> {
        let number = network.number();
        let from = self.places.partition_point(|place| place.network < number);
        let places = &self.places[from..];
        let length = places.partition_point(|place| place.network == number);
        (length > 0).then_some(SourceGroup { stretches: &self.stretches, places: &places[..length] })
    }
}

/// The sums of one source, by stretch and reporter.
pub(super) struct SourceGroup<'a> {
    stretches: &'a [Arc<Stretch>],
    /// Places of the sums; never empty.
    places: &'a [Place],
}

impl<'a> SourceGroup<'a> {
    fn sums(&self) -> impl Iterator<Item = &'a DmarcSourceSums> {
        let stretches = self.stretches;
        self.places.iter().map(|place| &stretches[place.stretch as usize].sources[place.source as usize])
    }

    /// Returns the totals over all days and reporters.
    pub(super) fn totals(&self) -> SourceTotals {
        let mut all = self.sums().map(SourceTotals::from);
        let first = all.next().unwrap_or_default();
        all.fold(first, SourceTotals::with)
    }

    /// Returns the domains that signed, and those that SPF was checked for, each most frequent first.
    pub(super) fn signers(&self) -> (Vec<DomainName>, Vec<DomainName>) {
        let (mut dkim, mut spf) = (Vec::new(), Vec::new());
        for sums in self.sums() {
            add_signers(&mut dkim, &sums.dkim_domains);
            add_signers(&mut spf, &sums.spf_domains);
        }
        (most_frequent(dkim), most_frequent(spf))
    }
}

/// Totals of one source.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SourceTotals {
    pub(super) network: SourceNetwork,
    pub(super) counts: DmarcCounts,
    pub(super) has_own_signature: bool,
    pub(super) first_day: u32,
    pub(super) last_day: u32,
}

impl SourceTotals {
    fn with(mut self, more: Self) -> Self {
        self.counts.merge(&more.counts);
        self.has_own_signature |= more.has_own_signature;
        self.first_day = self.first_day.min(more.first_day);
        self.last_day = self.last_day.max(more.last_day);
        self
    }
}

impl From<&DmarcSourceSums> for SourceTotals {
    fn from(sums: &DmarcSourceSums) -> Self {
        let DmarcSourceSums { network, counts, has_own_signature, first_day, last_day, .. } = *sums;
        Self { network, counts, has_own_signature, first_day, last_day }
    }
}

fn most_frequent(mut signers: Vec<(DomainName, u64)>) -> Vec<DomainName> {
    signers.sort_by(|(one, few), (other, many)| many.cmp(few).then_with(|| one.cmp(other)));
    signers.into_iter().take(SIGNERS_SHOWN).map(|(domain, _)| domain).collect()
}
