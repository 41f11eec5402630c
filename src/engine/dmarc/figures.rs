//! The sums of a range of days, computed from a domain's counts.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::kind_of;
use super::sums::{DmarcSums, SourceSums};
use crate::base::id::{AccountId, DomainId};
use crate::domain::dmarc_record::DmarcPolicy;
use crate::domain::dmarc_source::{DmarcCounts, SourceKind, SourceNetwork};
use crate::domain::dmarc_walk::Discovery;
use crate::domain::hostname::DomainName;
use crate::machine::dmarc_advice::{Advice, SourceFigures};
use crate::store::error::StoreError;
use crate::store::op::dmarc::{ReporterDays, SIGNERS_SHOWN, reporters, scan_days};
use crate::store::read::Read;
use crate::store::row::dmarc::{DmarcReporterRow, DmarcSourceRow};
use crate::store::schema::dmarc::{ReporterKey, dmarc_reporter, dmarc_source};

/// Maximum number of networks counted separately in one range, besides the domain's own, so that a year of attacks uses
/// bounded memory.
const NETWORKS_MAX: usize = 20_000;

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
    /// The sources, most messages first.
    pub sources: Vec<Source>,
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
    /// Its reports.
    pub reports: u64,
    /// The number of messages in them.
    pub messages: u64,
    /// Whether it is excluded from the counts.
    pub is_ignored: bool,
}

/// A source of a domain's mail.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    /// Its network.
    pub network: SourceNetwork,
    /// Classification of the source.
    pub kind: SourceKind,
    /// Whether the account marked it as its own or as another's.
    pub is_mine: Option<bool>,
    /// Day of the first report that lists it.
    pub first_day: u32,
    /// Day of the last report that lists it.
    pub last_day: u32,
    /// Counts of its messages.
    pub counts: DmarcCounts,
    /// Domains that signed, most frequent first.
    pub dkim_domains: Vec<DomainName>,
    /// Domains that SPF was checked for, most frequent first.
    pub spf_domains: Vec<DomainName>,
}

impl Source {
    /// Returns the figures that the advice needs.
    pub(super) fn figures(&self) -> SourceFigures {
        let (messages, failed) = (self.counts.messages(), self.counts.failed());
        SourceFigures { network: self.network, kind: self.kind, is_mine: self.is_mine, messages, failed }
    }

    const fn unseen(network: SourceNetwork, kind: SourceKind) -> Self {
        Self {
            network,
            kind,
            is_mine: None,
            first_day: 0,
            last_day: 0,
            counts: DmarcCounts::ZERO,
            dkim_domains: Vec::new(),
            spf_domains: Vec::new(),
        }
    }
}

/// The sums of a range.
pub(super) struct Figures {
    counts: DmarcCounts,
    days: BTreeMap<u32, DmarcCounts>,
    /// Days with a counted report, and whether one listed `p=quarantine`.
    reported: BTreeMap<u32, bool>,
    reports: u64,
    reporters: Vec<Reporter>,
    sources: Vec<Source>,
    own: HashSet<SourceNetwork>,
}

impl Figures {
    /// Reads the figures of a domain.
    pub(super) fn read(
        read: &impl Read,
        of: (AccountId, DomainId),
        range: Range,
        (own, sums): (&HashSet<SourceNetwork>, &DmarcSums),
    ) -> Result<Self, StoreError> {
        let mut sources: HashMap<SourceNetwork, SourceSums> = HashMap::new();
        let mut days: BTreeMap<u32, DmarcCounts> = BTreeMap::new();
        let reporting = scan_days(read, of, range.half_open())?;
        let mut known = reporters_of(read, of, &reporting)?;
        for stretch in sums.stretches(read, of, range, &reporting)? {
            for (day, reporter, counts) in &stretch.days {
                let reporter = known.get_mut(reporter);
                let is_ignored = reporter.as_ref().is_some_and(|reporter| reporter.is_ignored);
                if let Some(reporter) = reporter {
                    reporter.messages = reporter.messages.saturating_add(counts.messages());
                }
                if !is_ignored {
                    days.entry(*day).or_default().merge(counts);
                }
            }
            let is_ignored = |reporter| known.get(reporter).is_some_and(|reporter| reporter.is_ignored);
            for more in stretch.sources.iter().filter(|sums| !is_ignored(&sums.reporter)) {
                let network = match sources.len() < NETWORKS_MAX || sources.contains_key(&more.network) {
                    true => more.network,
                    false if is_own(read, of, more.network, own)? => more.network,
                    false => SourceNetwork::Other,
                };
                sources.entry(network).or_insert_with(|| SourceSums::since(more.first_day)).merge(more);
            }
        }
        let (mut reports, mut reported) = (0, BTreeMap::new());
        for day in reporting {
            for seen in day.reporters {
                let reporter = known.get_mut(&seen.reporter);
                if reporter.as_ref().is_none_or(|reporter| !reporter.is_ignored) {
                    reports += u64::from(seen.reports);
                    *reported.entry(day.day).or_insert(false) |= seen.has_seen(DmarcPolicy::Quarantine);
                }
                if let Some(reporter) = reporter {
                    reporter.reports += u64::from(seen.reports);
                }
            }
        }
        // A day's reports may contain no messages.
        for day in reported.keys() {
            days.entry(*day).or_default();
        }
        let mut counts = DmarcCounts::default();
        days.values().for_each(|day| counts.merge(day));
        let mut sources = sources
            .into_iter()
            .map(|(network, sums)| source_of(read, of, network, sums, own))
            .collect::<Result<Vec<_>, _>>()?;
        sources.sort_by_cached_key(|source| (std::cmp::Reverse(source.counts.messages()), source.network));
        let mut reporters: Vec<_> =
            known.into_values().filter(|reporter| reporter.reports > 0 || reporter.is_ignored).collect();
        reporters.sort_by(|one, other| {
            let order = |reporter: &Reporter| (reporter.is_ignored, std::cmp::Reverse(reporter.messages));
            let name = |reporter: &Reporter| (reporter.name.clone(), reporter.signed_by.clone());
            order(one).cmp(&order(other)).then_with(|| name(one).cmp(&name(other)))
        });
        Ok(Self { counts, days, reported, reports, reporters, sources, own: own.clone() })
    }

    /// Returns the number of days with a counted report.
    pub(super) fn days_with_reports(&self) -> u32 {
        u32::try_from(self.reported.len()).unwrap_or(u32::MAX)
    }

    /// Returns the number of days with a report that listed `p=quarantine`.
    pub(super) fn quarantine_days(&self) -> u32 {
        u32::try_from(self.reported.values().filter(|seen| **seen).count()).unwrap_or(u32::MAX)
    }

    /// Returns the sources, most messages first.
    pub(super) fn sources(&self) -> impl Iterator<Item = &Source> {
        self.sources.iter()
    }

    /// Returns one source, or one without messages if it is not in the range.
    pub(super) fn source(
        self,
        read: &impl Read,
        of: (AccountId, DomainId),
        network: SourceNetwork,
    ) -> Result<Option<Source>, StoreError> {
        if let Some(found) = self.sources.into_iter().find(|source| source.network == network) {
            return Ok(Some(found));
        }
        let row: Option<DmarcSourceRow> = read.row(&dmarc_source(of.0, of.1, network))?;
        Ok(row.map(|row| {
            let source = Source::unseen(network, kind_of(network, &self.own, false, 0));
            Source { is_mine: row.is_mine, first_day: row.first_day, last_day: row.last_day, ..source }
        }))
    }

    /// Returns the overview, completed with other facts about the domain.
    pub(super) fn into_overview(
        self,
        domain: DomainName,
        range: Range,
        published: Discovery,
        advice: Advice,
    ) -> Overview {
        Overview {
            domain,
            from: range.from,
            to: range.to,
            published,
            reports: self.reports,
            reporters: self.reporters,
            counts: self.counts,
            days: self.days.into_iter().collect(),
            sources: self.sources,
            advice,
        }
    }
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

/// Returns whether a network is this service's own, or marked as the account's own.
fn is_own(
    read: &impl Read,
    (account, domain): (AccountId, DomainId),
    network: SourceNetwork,
    own: &HashSet<SourceNetwork>,
) -> Result<bool, StoreError> {
    if own.contains(&network) {
        return Ok(true);
    }
    let row = read.sound_row::<DmarcSourceRow>(&dmarc_source(account, domain, network))?;
    Ok(row.is_some_and(|row| row.is_mine == Some(true)))
}

fn most_frequent(mut signers: Vec<(DomainName, u64)>) -> Vec<DomainName> {
    signers.sort_by(|(one, few), (other, many)| many.cmp(few).then_with(|| one.cmp(other)));
    signers.into_iter().take(SIGNERS_SHOWN).map(|(domain, _)| domain).collect()
}

fn source_of(
    read: &impl Read,
    (account, domain): (AccountId, DomainId),
    network: SourceNetwork,
    sums: SourceSums,
    own: &HashSet<SourceNetwork>,
) -> Result<Source, StoreError> {
    let row = read.sound_row::<DmarcSourceRow>(&dmarc_source(account, domain, network))?;
    Ok(Source {
        network,
        kind: kind_of(network, own, sums.has_own_signature, sums.counts.passed()),
        is_mine: row.and_then(|row| row.is_mine),
        first_day: row.map_or(sums.first_day, |row| row.first_day),
        last_day: row.map_or(sums.last_day, |row| row.last_day),
        counts: sums.counts,
        dkim_domains: most_frequent(sums.dkim_domains),
        spf_domains: most_frequent(sums.spf_domains),
    })
}
