//! The sums of a range of days, computed from a domain's counts.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

use super::by_network::{SourceGroup, SourceTotals, SourcesByNetwork};
use super::kind_of;
use super::sums::DmarcSums;
use crate::base::id::{AccountId, DomainId};
use crate::domain::dmarc_record::DmarcPolicy;
use crate::domain::dmarc_source::{DmarcCounts, SourceKind, SourceNetwork};
use crate::domain::dmarc_walk::Discovery;
use crate::domain::hostname::DomainName;
use crate::machine::dmarc_advice::{Advice, SourceFigures};
use crate::store::error::StoreError;
use crate::store::op::dmarc::{ReporterDays, reporters, scan_days};
use crate::store::read::Read;
use crate::store::row::dmarc::{DmarcMarkRow, DmarcReporterRow, DmarcSourceRow};
use crate::store::schema::dmarc::{ReporterKey, dmarc_domain, dmarc_reporter, dmarc_source, dmarc_source_of};

/// Maximum number of sources in an [`Overview`].
pub const SOURCES_SHOWN: usize = 200;

/// Days, counted from the epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Range {
    /// The first day.
    pub(super) from: u32,
    /// The last day.
    pub(super) to: u32,
}

impl Range {
    /// Returns the `days` days that end with `today`.
    pub(super) const fn of_last(today: u32, days: u32) -> Self {
        Self { from: today.saturating_sub(days.saturating_sub(1)), to: today }
    }

    /// Returns the same days as a half-open range.
    pub(super) const fn half_open(self) -> (u32, u32) {
        (self.from, self.to.saturating_add(1))
    }
}

/// Summary of a domain's reports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Overview {
    /// The domain.
    pub domain: DomainName,
    /// The first day, counted from the epoch.
    pub from: u32,
    /// The last day.
    pub to: u32,
    /// The record that applied at the last check.
    pub published: Discovery,
    /// Number of reports that count.
    pub reports: u64,
    /// Reporters, most messages first. Ignored reporters come last.
    pub reporters: Vec<Reporter>,
    /// Total counts of all messages.
    pub counts: DmarcCounts,
    /// The days with reports, in order.
    pub days: Vec<(u32, DmarcCounts)>,
    /// The largest sources, up to [`SOURCES_SHOWN`], most messages first.
    pub sources: Vec<Source>,
    /// The number of all sources.
    pub sources_total: usize,
    /// The next step.
    pub advice: Advice,
}

/// A reporter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reporter {
    /// Name that the reporter gives itself.
    pub name: String,
    /// The domain that signs its reports, without subdomains; `None` for reporters that are counted together.
    pub signed_by: Option<String>,
    /// Number of reports.
    pub reports: u64,
    /// The number of messages in the reports.
    pub messages: u64,
    /// Whether the reporter is excluded from the counts.
    pub is_ignored: bool,
}

/// A source of a domain's mail.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    /// Network.
    pub network: SourceNetwork,
    /// Classification of the source.
    pub kind: SourceKind,
    /// Whether the account marked the source as its own or as another's.
    pub is_mine: Option<bool>,
    /// Day of the first report that lists the source.
    pub first_day: u32,
    /// Day of the last report that lists the source.
    pub last_day: u32,
    /// Counts of its messages.
    pub counts: DmarcCounts,
    /// Domains that signed, most frequent first.
    pub dkim_domains: Vec<DomainName>,
    /// Domains that SPF was checked for, most frequent first.
    pub spf_domains: Vec<DomainName>,
}

/// The sums of a range.
pub(super) struct Figures<'a> {
    counts: DmarcCounts,
    days: BTreeMap<u32, DmarcCounts>,
    /// Days with a counted report, and whether one listed `p=quarantine`.
    reported: BTreeMap<u32, bool>,
    reports: u64,
    reporters: HashMap<ReporterKey, Reporter>,
    sources: SourcesByNetwork,
    /// Networks of this service.
    own: &'a HashSet<SourceNetwork>,
    /// Networks that the account marked, and whether as its own.
    marks: HashMap<SourceNetwork, bool>,
}

impl<'a> Figures<'a> {
    /// Reads the figures of a domain.
    pub(super) fn read(
        read: &impl Read,
        of: (AccountId, DomainId),
        range: Range,
        (own, sums): (&'a HashSet<SourceNetwork>, &DmarcSums),
    ) -> Result<Self, StoreError> {
        let reporting = scan_days(read, of, range.half_open())?;
        let reporters = reporters_of(read, of, &reporting)?;
        let ignored = reporters.iter().filter(|(_, reporter)| reporter.is_ignored).map(|(key, _)| *key).collect();
        let stretches = sums.stretches(read, of, range, &reporting)?;
        let mut figures = Self {
            counts: DmarcCounts::default(),
            days: BTreeMap::new(),
            reported: BTreeMap::new(),
            reports: 0,
            reporters,
            sources: SourcesByNetwork::new(stretches, &ignored),
            own,
            marks: marks(read, of)?,
        };
        figures.add_messages();
        figures.add_reports(&reporting);
        Ok(figures)
    }

    fn add_messages(&mut self) {
        for (day, reporter, counts) in self.sources.stretches().flat_map(|stretch| &stretch.days) {
            let reporter = self.reporters.get_mut(reporter);
            let is_ignored = reporter.as_ref().is_some_and(|reporter| reporter.is_ignored);
            if let Some(reporter) = reporter {
                reporter.messages = reporter.messages.saturating_add(counts.messages());
            }
            if !is_ignored {
                self.days.entry(*day).or_default().merge(counts);
                self.counts.merge(counts);
            }
        }
    }

    fn add_reports(&mut self, days: &[ReporterDays]) {
        for day in days {
            for seen in &day.reporters {
                let reporter = self.reporters.get_mut(&seen.reporter);
                if reporter.as_ref().is_none_or(|reporter| !reporter.is_ignored) {
                    self.reports += u64::from(seen.reports);
                    *self.reported.entry(day.day).or_insert(false) |= seen.has_seen(DmarcPolicy::Quarantine);
                    // A day's reports may contain no messages.
                    self.days.entry(day.day).or_default();
                }
                if let Some(reporter) = reporter {
                    reporter.reports += u64::from(seen.reports);
                }
            }
        }
    }

    /// Returns the number of days with a counted report.
    pub(super) fn days_with_reports(&self) -> u32 {
        u32::try_from(self.reported.len()).unwrap_or(u32::MAX)
    }

    /// Returns the number of days with a report that listed `p=quarantine`.
    pub(super) fn quarantine_days(&self) -> u32 {
        u32::try_from(self.reported.values().filter(|seen| **seen).count()).unwrap_or(u32::MAX)
    }

    /// Returns the figures of every source that the advice needs.
    pub(super) fn source_figures(&self) -> impl Iterator<Item = SourceFigures> {
        self.sources.iter().map(|source| self.figures_of(&source.totals()))
    }

    fn figures_of(&self, totals: &SourceTotals) -> SourceFigures {
        SourceFigures {
            network: totals.network,
            kind: kind_of(totals.network, self.own, totals.has_own_signature, totals.counts.passed()),
            is_mine: self.marks.get(&totals.network).copied(),
            messages: totals.counts.messages(),
            failed: totals.counts.failed(),
        }
    }

    /// Returns the counts of the sources that belong to this service. Sources that the account has marked as its own
    /// don't count: their failures need no action here.
    pub(super) fn own_counts(&self) -> DmarcCounts {
        let is_own = |totals: &SourceTotals| self.figures_of(totals).kind == SourceKind::Own;
        let own = self.sources.iter().map(|source| source.totals()).filter(is_own);
        own.fold(DmarcCounts::default(), |mut counts, totals| {
            counts.merge(&totals.counts);
            counts
        })
    }

    /// Returns one source, or one without messages if it is not in the range.
    pub(super) fn source(
        &self,
        read: &impl Read,
        of: (AccountId, DomainId),
        network: SourceNetwork,
    ) -> Result<Option<Source>, StoreError> {
        if let Some(source) = self.sources.get(network) {
            return self.completed(read, of, &source).map(Some);
        }
        let row: Option<DmarcSourceRow> = read.row(&dmarc_source(of.0, of.1, network))?;
        Ok(row.map(|row| Source {
            network,
            kind: kind_of(network, self.own, false, 0),
            is_mine: row.is_mine,
            first_day: row.first_day,
            last_day: row.last_day,
            counts: DmarcCounts::ZERO,
            dkim_domains: Vec::new(),
            spf_domains: Vec::new(),
        }))
    }

    /// Returns a source with the data of its row.
    fn completed(
        &self,
        read: &impl Read,
        (account, domain): (AccountId, DomainId),
        source: &SourceGroup<'_>,
    ) -> Result<Source, StoreError> {
        let totals = source.totals();
        let SourceFigures { network, kind, is_mine, .. } = self.figures_of(&totals);
        let row = read.sound_row::<DmarcSourceRow>(&dmarc_source(account, domain, network))?;
        let (first_day, last_day) =
            row.map_or((totals.first_day, totals.last_day), |row| (row.first_day, row.last_day));
        let (dkim_domains, spf_domains) = source.signers();
        Ok(Source { network, kind, is_mine, first_day, last_day, counts: totals.counts, dkim_domains, spf_domains })
    }

    /// Returns the largest sources, up to [`SOURCES_SHOWN`], most messages first, and the number of all sources.
    fn largest_sources(&self, read: &impl Read, of: (AccountId, DomainId)) -> Result<(Vec<Source>, usize), StoreError> {
        let mut order: Vec<_> = (self.sources.iter())
            .map(|source| {
                let totals = source.totals();
                (Reverse(totals.counts.messages()), totals.network)
            })
            .collect();
        let total = order.len();
        if total > SOURCES_SHOWN {
            order.select_nth_unstable(SOURCES_SHOWN);
            order.truncate(SOURCES_SHOWN);
        }
        order.sort_unstable();
        let largest = order.into_iter().filter_map(|(_, network)| self.sources.get(network));
        let largest = largest.map(|source| self.completed(read, of, &source)).collect::<Result<_, _>>()?;
        Ok((largest, total))
    }

    /// Returns the overview, completed with other facts about the domain.
    pub(super) fn into_overview(
        self,
        read: &impl Read,
        of: (AccountId, DomainId),
        (domain, range): (DomainName, Range),
        (published, advice): (Discovery, Advice),
    ) -> Result<Overview, StoreError> {
        let (sources, sources_total) = self.largest_sources(read, of)?;
        let mut reporters: Vec<_> = self.reporters.into_values().collect();
        reporters.retain(|reporter| reporter.reports > 0 || reporter.is_ignored);
        reporters.sort_by(|one, other| {
            let order = |reporter: &Reporter| (reporter.is_ignored, Reverse(reporter.messages));
            let name = |reporter: &Reporter| (reporter.name.clone(), reporter.signed_by.clone());
            order(one).cmp(&order(other)).then_with(|| name(one).cmp(&name(other)))
        });
        Ok(Overview {
            domain,
            from: range.from,
            to: range.to,
            published,
            reports: self.reports,
            reporters,
            counts: self.counts,
            days: self.days.into_iter().collect(),
            sources,
            sources_total,
            advice,
        })
    }
}

/// Returns the marks of a domain's sources.
fn marks(
    read: &impl Read,
    (account, domain): (AccountId, DomainId),
) -> Result<HashMap<SourceNetwork, bool>, StoreError> {
    let rows = read.sound_rows::<DmarcMarkRow>(&dmarc_domain(account, domain), usize::MAX)?;
    Ok(rows.into_iter().filter_map(|(key, row)| Some((dmarc_source_of(&key)?, row.is_mine))).collect())
}

/// Returns the reporters of a domain, including each reporter of these days.
fn reporters_of(
    read: &impl Read,
    of: (AccountId, DomainId),
    days: &[ReporterDays],
) -> Result<HashMap<ReporterKey, Reporter>, StoreError> {
    let mut known: HashMap<ReporterKey, Reporter> =
        reporters(read, of.0, of.1)?.into_iter().map(|(key, row)| (key, Reporter::from(row))).collect();
    for key in days.iter().flat_map(|day| &day.reporters).map(|seen| seen.reporter) {
        if !known.contains_key(&key)
            && let Some(row) = read.sound_row::<DmarcReporterRow>(&dmarc_reporter(of.0, of.1, key))?
        {
            known.insert(key, row.into());
        }
    }
    Ok(known)
}

impl From<DmarcReporterRow> for Reporter {
    fn from(DmarcReporterRow { name, signer, is_ignored, .. }: DmarcReporterRow) -> Self {
        Self { name, signed_by: signer, reports: 0, messages: 0, is_ignored }
    }
}
