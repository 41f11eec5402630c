//! A day on which [`NETWORKS_MAX`](super::NETWORKS_MAX) networks have counts of their own.
//!
//! A report can name any number of networks, so the first one could hide the sources in all later ones. Therefore a
//! network can be displaced: it is then counted with all others. A new network displaces one of the reporter with the
//! most networks, until both reporters have as many. Networks that only ignored reporters name are displaced first.
//! The domain's own and marked networks are never displaced, and displace others in any case.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

use super::{CountedSource, RecordDmarcReport, reporters, scan, sound_or_none};
use crate::domain::dmarc_source::SourceNetwork;
use crate::store::error::StoreError;
use crate::store::read::Read as _;
use crate::store::row::dmarc::{DmarcCountsRow, DmarcDayRow, DmarcMarkRow, DmarcSourceRow};
use crate::store::schema::Table;
use crate::store::schema::dmarc::{self as keys, ReporterKey};
use crate::store::tables::Tables;

/// The networks that can be displaced.
pub(super) struct FullDay {
    /// Number of networks that each reporter names; the maximum for ignored reporters.
    shares: HashMap<ReporterKey, u32>,
    /// The networks of each reporter, those with the most messages first. A network that several reporters name belongs
    /// to the one with the fewest networks.
    networks: HashMap<ReporterKey, Vec<SourceNetwork>>,
}

impl FullDay {
    /// Reads the day of a report.
    pub(super) fn read(tables: &Tables<'_>, of: &RecordDmarcReport) -> Result<Self, StoreError> {
        let (day, mut named) = (of.day(), BTreeMap::<SourceNetwork, (u64, Vec<ReporterKey>)>::new());
        scan(
            tables,
            (of.account, of.domain),
            (day, day + 1),
            &mut |CountedSource { network, reporter, row, .. }| {
                let (messages, reporters) = named.entry(network).or_default();
                *messages = messages.saturating_add(row.counts.messages());
                reporters.push(reporter);
            },
        )?;
        named.remove(&SourceNetwork::Other);
        let mut shares = HashMap::new();
        for reporter in named.values().flat_map(|(_, reporters)| reporters) {
            *shares.entry(*reporter).or_insert(0) += 1;
        }
        let known = reporters(tables, of.account, of.domain)?;
        shares.extend(known.into_iter().filter(|(_, row)| row.is_ignored).map(|(key, _)| (key, u32::MAX)));
        let kept = of.kept_networks(tables)?;
        let mut largest_first: Vec<_> = named.into_iter().filter(|(network, _)| !kept.contains(network)).collect();
        largest_first.sort_by_key(|(_, (messages, _))| Reverse(*messages));
        let mut networks = HashMap::<_, Vec<_>>::new();
        for (network, (_, reporters)) in largest_first {
            if let Some(owner) = reporters.into_iter().min_by_key(|reporter| (shares[reporter], *reporter)) {
                networks.entry(owner).or_default().push(network);
            }
        }
        Ok(Self { shares, networks })
    }

    /// Notes that a reporter names a further network.
    pub(super) fn add(&mut self, reporter: ReporterKey) {
        let share = self.shares.entry(reporter).or_insert(0);
        *share = share.saturating_add(1);
    }

    /// Notes that a network of a reporter was displaced.
    fn remove(&mut self, reporter: ReporterKey) {
        if let Some(share) = self.shares.get_mut(&reporter).filter(|share| **share < u32::MAX) {
            *share = share.saturating_sub(1);
        }
    }

    /// Takes the network that a further network of this reporter displaces, if there is one. `None` stands for an own
    /// or marked network, which displaces any.
    fn displaced(&mut self, reporter: Option<ReporterKey>) -> Option<SourceNetwork> {
        let share = |reporter: &ReporterKey| self.shares.get(reporter).copied().unwrap_or(0);
        let owners = self.networks.iter().filter(|(_, networks)| !networks.is_empty()).map(|(owner, _)| *owner);
        let largest = owners.max_by_key(|owner| (share(owner), *owner))?;
        let is_larger = |reporter| share(&largest) > share(&reporter).saturating_add(1);
        if !reporter.is_none_or(is_larger) {
            return None;
        }
        self.networks.get_mut(&largest)?.pop()
    }
}

impl RecordDmarcReport {
    /// Returns the networks that keep counts of their own on every day.
    fn kept_networks(&self, tables: &Tables<'_>) -> Result<HashSet<SourceNetwork>, StoreError> {
        let prefix = keys::dmarc_domain(self.account, self.domain);
        let marks = tables.sound_rows::<DmarcMarkRow>(&prefix, usize::MAX)?;
        let marked = marks.iter().filter_map(|(key, _)| keys::dmarc_source_of(key));
        Ok(marked.chain(self.own.iter().copied()).collect())
    }

    /// Counts one network of a full day with all others, to make room for a further one of this reporter; `None` stands
    /// for an own or marked network. Returns whether there is room.
    pub(super) fn make_room(
        &self,
        tables: &mut Tables<'_>,
        (row, day): (&mut DmarcDayRow, &mut FullDay),
        reporter: Option<ReporterKey>,
    ) -> Result<bool, StoreError> {
        let Some(network) = day.displaced(reporter) else { return Ok(false) };
        let source = keys::dmarc_source(self.account, self.domain, network);
        let seen = sound_or_none::<DmarcSourceRow>(tables.row(&source))?;
        let today = self.day();
        let is_of_today = |seen: DmarcSourceRow| (seen.first_day, seen.last_day) == (today, today);
        let mut keeps_source = !seen.is_none_or(is_of_today);
        if !keeps_source {
            tables.remove(Table::DmarcSources, &source);
        }
        let prefix = keys::dmarc_counts_of(self.account, self.domain, self.day(), network);
        for (key, counts) in tables.sound_rows::<DmarcCountsRow>(&prefix, usize::MAX)? {
            let Some((day_of_key, _, reporter)) = keys::dmarc_counts_parts(&key) else { continue };
            let other = keys::dmarc_counts(self.account, self.domain, day_of_key, SourceNetwork::Other, reporter);
            Self::add_counts(tables, row, &other, &counts)?;
            day.remove(reporter);
            if std::mem::take(&mut keeps_source) {
                // The expiry of an empty row removes the source of other days.
                tables.put(&key, &DmarcCountsRow::default());
            } else {
                tables.remove(Table::DmarcCounts, &key);
                row.rows = row.rows.saturating_sub(1);
            }
        }
        self.note_source(tables, SourceNetwork::Other)?;
        Ok(true)
    }
}
