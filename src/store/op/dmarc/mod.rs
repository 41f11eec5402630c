//! DMARC aggregate reports: recording one, and counting its messages by domain, day, network and reporter in rows that
//! are bounded and kept 400 days.
//!
//! Reports are written by strangers. So a day counts so many reports of all and of each signing domain, and so many
//! networks; what comes beyond is dropped or counted together.

mod marks;
mod scan;
mod sweep;
#[cfg(test)]
mod tests;

pub use marks::{DmarcRefusal, IgnoreDmarcReporter, MarkDmarcSource};
pub use scan::{CountedSource, ReporterDays, ignored_reporters, reporters, scan, scan_days};
pub(super) use sweep::sweep;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::outcomes::KEPT;
use super::{NotThere, Op};
use crate::base::id::{AccountId, DmarcReportId, DomainId};
use crate::base::time::Timestamp;
use crate::domain::dmarc_record::DmarcPolicy;
use crate::domain::dmarc_source::{DmarcCounts, SourceNetwork};
use crate::domain::hostname::DomainName;
use crate::store::error::{Stop, StoreError};
use crate::store::read::{Order, Read, after_prefix};
use crate::store::row::Row;
use crate::store::row::dmarc::{
    DmarcCountsRow, DmarcDayRow, DmarcReportRow, DmarcReporterRow, DmarcSourceRow, ReporterDay,
};
use crate::store::row::domain::DomainRow;
use crate::store::schema::dmarc::{self as keys, ReporterKey};
use crate::store::schema::{self, Table};
use crate::store::tables::Tables;

/// Authentic reports of one domain and day that count.
pub const REPORTS_MAX: u32 = 500;
/// Other reports of one domain and day that are listed.
pub const UNAUTHENTIC_MAX: u32 = 50;
/// Reports of one signing domain that count for a domain and day.
pub const REPORTS_OF_SIGNER_MAX: u32 = 50;
/// Networks of one domain and day that are counted by themselves.
pub const NETWORKS_MAX: u32 = 1000;
/// Rows of counts of one domain and day, one for each network of each reporter. Beyond them, a reporter's networks are
/// counted together.
const ROWS_MAX: u32 = 10_000;
/// Signing domains of a row that are kept, the most frequent ones: more than are shown, so that a rare one can become
/// frequent.
const SIGNERS_STORED: usize = 8;
/// Signing domains of a source that are shown, the most frequent ones.
pub const SIGNERS_SHOWN: usize = 3;

const DAY_SECS: u64 = 24 * 3600;

/// The UTC day of `moment`, counted from the epoch.
pub fn day_of(moment: Timestamp) -> u32 {
    u32::try_from(moment.as_secs() / DAY_SECS).unwrap_or(u32::MAX)
}

/// The first moment of a UTC day.
pub fn start_of(day: u32) -> Timestamp {
    Timestamp::ZERO + Duration::from_secs(DAY_SECS) * day
}

/// The first day that is kept at `moment`.
fn first_kept(moment: Timestamp) -> u32 {
    day_of(moment - KEPT)
}

/// Records a report, or the part of one that belongs to a domain.
#[derive(Debug, Serialize, Deserialize)]
pub struct RecordDmarcReport {
    /// The account.
    pub account: AccountId,
    /// The domain.
    pub domain: DomainId,
    /// The report.
    pub report: DmarcReportRow,
    /// The domain that signed the mail; none where the report is not authentic.
    pub signer: Option<DomainName>,
    /// The policy that the reporter saw published for the domain.
    pub policy: DmarcPolicy,
    /// The messages of each network.
    pub sources: Vec<SourceCounts>,
}

/// The messages of one network in a report.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SourceCounts {
    /// The network.
    pub network: SourceNetwork,
    /// Message counts by evaluation.
    pub counts: DmarcCounts,
    /// Whether a signature of the domain's own was on some of them.
    pub has_own_signature: bool,
    /// The domains that signed, with their messages.
    pub dkim_domains: Vec<(DomainName, u64)>,
    /// The domains that SPF was checked for, with their messages.
    pub spf_domains: Vec<(DomainName, u64)>,
}

/// Outcome of recording a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recorded {
    /// Its messages are counted.
    Counted,
    /// It is listed, and its messages are not counted.
    Unauthentic,
    /// It was counted before.
    Repeated,
    /// The day has as many reports as it may.
    OverLimit,
}

impl Op for RecordDmarcReport {
    type Reply = Recorded;
    /// The domain may not be sent from any more, or is gone.
    type Refusal = NotThere;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<Recorded, Stop<NotThere>> {
        let row: Option<DomainRow> = tables.row(&schema::domain(self.account, self.domain))?;
        if !row.is_some_and(|row| row.status.may_send()) {
            return Err(Stop::Refused(NotThere));
        }
        let seen = self.seen_key();
        if let Some(seen) = &seen
            && tables.has(Table::DmarcSeen, seen)?
        {
            return Ok(Recorded::Repeated);
        }
        let day_key = keys::dmarc_day(self.account, self.domain, self.day());
        let mut day: DmarcDayRow = or_default(tables.row(&day_key))?;
        let recorded = match &self.signer {
            None => {
                if day.unauthentic >= UNAUTHENTIC_MAX {
                    return Ok(Recorded::OverLimit);
                }
                day.unauthentic += 1;
                Recorded::Unauthentic
            }
            Some(signer) => {
                if !admit(&mut day, signer) {
                    return Ok(Recorded::OverLimit);
                }
                self.count(tables, &mut day)?;
                if let Some(seen) = seen {
                    tables.put_bytes(Table::DmarcSeen, &seen, Vec::new());
                }
                Recorded::Counted
            }
        };
        tables.put(&day_key, &day);
        let id: DmarcReportId = tables.next_id();
        tables.put(&keys::dmarc_report(self.account, self.domain, id), &self.report);
        Ok(recorded)
    }
}

/// Counts a report of a signing domain, where the day has room for it.
fn admit(day: &mut DmarcDayRow, signer: &DomainName) -> bool {
    let all: u32 = day.reporters.iter().map(|reporter| reporter.reports).sum();
    if all >= REPORTS_MAX {
        return false;
    }
    let digest = keys::dmarc_reporter_key(signer.as_str());
    match day.signers.iter_mut().find(|(known, _)| *known == digest) {
        Some((_, reports)) if *reports >= REPORTS_OF_SIGNER_MAX => return false,
        Some((_, reports)) => *reports += 1,
        None => day.signers.push((digest, 1)),
    }
    true
}

impl RecordDmarcReport {
    /// The day of its range's middle.
    fn day(&self) -> u32 {
        let (begin, end) = (self.report.begin, self.report.end);
        day_of(begin + end.since(begin) / 2)
    }

    /// The key under which it is remembered. A report ends at most 60 days before it comes, so that one which begins on
    /// a day that is swept can't come again.
    fn seen_key(&self) -> Option<[u8; 52]> {
        let report = &self.report;
        let from = report.from_domain.as_ref()?;
        let digest =
            keys::dmarc_digest(from.as_str(), &report.report_id, report.policy_domain.as_str(), report.begin.as_secs());
        Some(keys::dmarc_seen(self.account, self.domain, day_of(report.begin), digest))
    }

    /// Adds its messages to the day's.
    fn count(&self, tables: &mut Tables<'_>, day: &mut DmarcDayRow) -> Result<(), StoreError> {
        let reporter = keys::dmarc_reporter_key(&self.report.reporter);
        let place = day.reporters.iter().position(|known| known.reporter == reporter).unwrap_or_else(|| {
            day.reporters.push(ReporterDay::new(reporter));
            day.reporters.len() - 1
        });
        day.reporters[place].add(self.policy);
        self.note_reporter(tables, reporter)?;
        for source in &self.sources {
            self.count_source(tables, day, reporter, source)?;
        }
        Ok(())
    }

    fn note_reporter(&self, tables: &mut Tables<'_>, reporter: ReporterKey) -> Result<(), StoreError> {
        let key = keys::dmarc_reporter(self.account, self.domain, reporter);
        let row = sound_or_none::<DmarcReporterRow>(tables.row(&key))?;
        let (name, day) = (self.report.reporter.clone(), self.day());
        let new = DmarcReporterRow { name, last_day: day, is_ignored: false };
        let row = row.map_or(new, |row| DmarcReporterRow { last_day: row.last_day.max(day), ..row });
        tables.put(&key, &row);
        Ok(())
    }

    fn count_source(
        &self,
        tables: &mut Tables<'_>,
        day: &mut DmarcDayRow,
        reporter: ReporterKey,
        source: &SourceCounts,
    ) -> Result<(), StoreError> {
        let (network, key) = self.place(tables, day, reporter, source.network)?;
        let mut row = match sound_or_none::<DmarcCountsRow>(tables.row(&key))? {
            Some(row) => row,
            None => {
                day.rows += 1;
                DmarcCountsRow::default()
            }
        };
        row.counts.merge(&source.counts);
        row.has_own_signature |= source.has_own_signature;
        add_signers(&mut row.dkim_domains, &source.dkim_domains);
        add_signers(&mut row.spf_domains, &source.spf_domains);
        tables.put(&key, &row);
        let key = keys::dmarc_source(self.account, self.domain, network);
        let today = self.day();
        let new = DmarcSourceRow { first_day: today, last_day: today, is_mine: None };
        let known = sound_or_none::<DmarcSourceRow>(tables.row(&key))?.unwrap_or(new);
        let row = DmarcSourceRow {
            first_day: known.first_day.min(today),
            last_day: known.last_day.max(today),
            is_mine: known.is_mine,
        };
        tables.put(&key, &row);
        Ok(())
    }

    /// The network that a source counts as on this day, and the key of its row.
    fn place(
        &self,
        tables: &Tables<'_>,
        day: &mut DmarcDayRow,
        reporter: ReporterKey,
        network: SourceNetwork,
    ) -> Result<(SourceNetwork, Vec<u8>), StoreError> {
        let today = self.day();
        let key = keys::dmarc_counts(self.account, self.domain, today, network, reporter);
        let other = || {
            let network = SourceNetwork::Other;
            (network, keys::dmarc_counts(self.account, self.domain, today, network, reporter))
        };
        if network == SourceNetwork::Other {
            return Ok(other());
        }
        if tables.has(Table::DmarcCounts, &key)? {
            return Ok((network, key));
        }
        if day.rows >= ROWS_MAX {
            return Ok(other());
        }
        let prefix = keys::dmarc_counts_of(self.account, self.domain, today, network);
        let (from, to) = (&prefix, after_prefix(&prefix));
        let is_known = !tables.sound_keys(Table::DmarcCounts, from, &to, Order::Ascending, 1)?.is_empty();
        if !is_known {
            if day.networks >= NETWORKS_MAX {
                return Ok(other());
            }
            day.networks += 1;
        }
        Ok((network, key))
    }
}

/// Adds signing domains to those that are known, and keeps the most frequent ones.
fn add_signers(known: &mut Vec<(DomainName, u64)>, more: &[(DomainName, u64)]) {
    for (domain, messages) in more {
        match known.iter_mut().find(|(name, _)| name == domain) {
            Some((_, counted)) => *counted = counted.saturating_add(*messages),
            None => known.push((domain.clone(), *messages)),
        }
    }
    known.sort_by(|(one, few), (other, many)| many.cmp(few).then_with(|| one.cmp(other)));
    known.truncate(SIGNERS_STORED);
}

/// A row, or none where it is damaged: it begins again then, because no report is lost for the sake of a count.
fn sound_or_none<R: Row>(row: Result<Option<R>, StoreError>) -> Result<Option<R>, StoreError> {
    match row {
        Err(error) if error.is_of_row() => Ok(None),
        row => row,
    }
}

fn or_default<R: Row + Default>(row: Result<Option<R>, StoreError>) -> Result<R, StoreError> {
    sound_or_none(row).map(Option::unwrap_or_default)
}
