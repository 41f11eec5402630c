//! DMARC aggregate reports: recording one, and counting its messages by domain, day, network and reporter, in a bounded
//! number of rows that are kept for 400 days.
//!
//! Any host on the internet can send reports. So each day has a maximum number of reports, of reports for each signing
//! domain with its subdomains, and of networks. Reports above a limit are dropped, and networks above theirs are
//! counted together. But no report can hide what others say: networks have counts of their own in equal shares of all
//! reporters, and the domain's own networks in any case (`full_day.rs`).

mod full_day;
mod marks;
mod reporter;
mod scan;
mod sums;
mod sweep;
#[cfg(test)]
mod tests;

use full_day::FullDay;
pub use marks::{DmarcRefusal, IgnoreDmarcReporter, MarkDmarcSource};
use reporter::CountedReporter;
pub use reporter::SHARED_NAME;
pub use scan::{CountedSource, ReporterDays, reporters, scan, scan_days};
pub use sums::KeepDmarcSums;
pub(super) use sweep::sweep;

use std::cmp::Reverse;
use std::ops::ControlFlow;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::outcomes::KEPT;
use super::{NotFound, Op};
use crate::base::id::{AccountId, DmarcReportId, DomainId};
use crate::base::time::Timestamp;
use crate::domain::dmarc_record::DmarcPolicy;
use crate::domain::dmarc_source::{DmarcCounts, SourceNetwork};
use crate::domain::hostname::DomainName;
use crate::store::error::{OpError, StoreError};
use crate::store::read::{Order, Read, after_prefix, sound};
use crate::store::row::Row;
use crate::store::row::dmarc::{DmarcCountsRow, DmarcDayRow, DmarcReportRow, DmarcSourceRow, ReporterDay};
use crate::store::row::domain::DomainRow;
use crate::store::schema::dmarc::{self as keys, ReporterKey};
use crate::store::schema::{self, Table};
use crate::store::tables::Tables;

/// Maximum number of counted authentic reports of one domain and day.
pub const REPORTS_MAX: u32 = 500;
/// Maximum number of other reports of one domain and day that are listed.
pub const UNAUTHENTIC_MAX: u32 = 50;
/// Maximum number of counted reports of one signing domain, with all names of its registrant, for a domain and day.
pub const REPORTS_OF_SIGNER_MAX: u32 = 50;
/// Maximum number of networks of one domain and day with counts of their own.
pub const NETWORKS_MAX: u32 = 1000;
/// Maximum number of rows of counts of one domain and day, one for each network of each reporter. Above it, a
/// reporter's networks are counted together.
const ROWS_MAX: u32 = 10_000;
/// Maximum number of signing domains stored in a row, the most frequent ones. More are stored than shown, so that a
/// rare one can become frequent.
const SIGNERS_STORED: usize = 8;
/// Maximum number of signing domains shown for a source, the most frequent ones.
pub const SIGNERS_SHOWN: usize = 3;

const DAY_SECS: u64 = 24 * 3600;

/// Returns the UTC day of `moment`, as a number of days since the epoch.
pub fn day_of(moment: Timestamp) -> u32 {
    u32::try_from(moment.as_secs() / DAY_SECS).unwrap_or(u32::MAX)
}

/// Returns the first moment of a UTC day.
pub fn start_of(day: u32) -> Timestamp {
    Timestamp::ZERO + Duration::from_secs(DAY_SECS) * day
}

/// Returns the first day that is kept at `moment`.
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
    /// The domain that signed the mail; `None` if the report is not authentic.
    pub signer: Option<DomainName>,
    /// The domain's policy that the reporter saw published.
    pub policy: DmarcPolicy,
    /// Networks that this service sends from. They have counts of their own on every day.
    pub own: Vec<SourceNetwork>,
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
    /// Whether some of the messages had a signature of the domain itself.
    pub has_own_signature: bool,
    /// The signing domains, with their messages.
    pub dkim_domains: Vec<(DomainName, u64)>,
    /// The domains checked by SPF, with their messages.
    pub spf_domains: Vec<(DomainName, u64)>,
}

/// Outcome of recording a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordOutcome {
    /// The messages are counted.
    Counted,
    /// The report is listed, but its messages are not counted.
    Unauthentic,
    /// The report was already counted.
    Repeated,
    /// The day has reached its limit of reports.
    OverLimit,
}

impl Op for RecordDmarcReport {
    type Reply = RecordOutcome;
    /// The account may no longer send from the domain, or the domain was removed.
    type Refusal = NotFound;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<RecordOutcome, OpError<NotFound>> {
        let row: Option<DomainRow> = tables.row(&schema::domain(self.account, self.domain))?;
        if !row.is_some_and(|row| row.status.may_send()) {
            return Err(OpError::Refused(NotFound));
        }
        let seen = self.seen_key();
        if let Some(seen) = &seen
            && tables.has(Table::DmarcSeen, seen)?
        {
            return Ok(RecordOutcome::Repeated);
        }
        let day_key = keys::dmarc_day(self.account, self.domain, self.day());
        let mut day: DmarcDayRow = or_default(tables.row(&day_key))?;
        let recorded = match &self.signer {
            None => {
                if day.unauthentic >= UNAUTHENTIC_MAX {
                    return Ok(RecordOutcome::OverLimit);
                }
                day.unauthentic += 1;
                RecordOutcome::Unauthentic
            }
            Some(signer) => {
                if !admit(&mut day, signer) {
                    return Ok(RecordOutcome::OverLimit);
                }
                self.count(tables, &mut day, signer)?;
                if let Some(seen) = seen {
                    tables.put_bytes(Table::DmarcSeen, &seen, Vec::new());
                }
                RecordOutcome::Counted
            }
        };
        tables.put(&day_key, &day);
        let id: DmarcReportId = tables.next_id();
        tables.put(&keys::dmarc_report(self.account, self.domain, id), &self.report);
        Ok(recorded)
    }
}

/// Counts a report of a signing domain, if the day's limits allow it. All names of one registrant share a limit:
/// otherwise a single one could fill the day with signatures of its subdomains.
fn admit(day: &mut DmarcDayRow, signer: &DomainName) -> bool {
    let all: u32 = day.reporters.iter().map(|reporter| reporter.reports).sum();
    if all >= REPORTS_MAX {
        return false;
    }
    let digest = keys::dmarc_reporter_key(signer.registrant_domain());
    match day.signers.iter_mut().find(|(known, _)| *known == digest) {
        Some((_, reports)) if *reports >= REPORTS_OF_SIGNER_MAX => return false,
        Some((_, reports)) => *reports += 1,
        None => day.signers.push((digest, 1)),
    }
    true
}

impl RecordDmarcReport {
    /// Returns the day of the middle of its range.
    fn day(&self) -> u32 {
        let (begin, end) = (self.report.begin, self.report.end);
        day_of(begin + end.since(begin) / 2)
    }

    /// Returns the key that identifies the report. A report is accepted up to 60 days after its end, so one that begins
    /// on a swept day can't arrive again.
    fn seen_key(&self) -> Option<[u8; 52]> {
        let report = &self.report;
        let from = report.from_domain.as_ref()?;
        let digest =
            keys::dmarc_digest(from.as_str(), &report.report_id, report.policy_domain.as_str(), report.begin.as_secs());
        Some(keys::dmarc_seen(self.account, self.domain, day_of(report.begin), digest))
    }

    /// Adds the report's messages to those of the day.
    fn count(&self, tables: &mut Tables<'_>, day: &mut DmarcDayRow, signer: &DomainName) -> Result<(), StoreError> {
        let reporter = self.note_reporter(tables, signer)?;
        let place = day.reporters.iter().position(|known| known.reporter == reporter.key).unwrap_or_else(|| {
            day.reporters.push(ReporterDay::new(reporter.key));
            day.reporters.len() - 1
        });
        day.reporters[place].add(self.policy);
        let mut day = Day { row: day, reporter, full: None };
        // The networks with the most messages are the most useful to list.
        let mut sources: Vec<_> = self.sources.iter().collect();
        sources.sort_by_key(|source| (!self.own.contains(&source.network), Reverse(source.counts.messages())));
        sources.into_iter().try_for_each(|source| self.count_source(tables, &mut day, source))
    }

    fn count_source(
        &self,
        tables: &mut Tables<'_>,
        day: &mut Day<'_>,
        source: &SourceCounts,
    ) -> Result<(), StoreError> {
        let network = self.place(tables, day, source)?;
        let SourceCounts { counts, has_own_signature, ref dkim_domains, ref spf_domains, .. } = *source;
        let (dkim_domains, spf_domains) = (dkim_domains.clone(), spf_domains.clone());
        let more = DmarcCountsRow { counts, has_own_signature, dkim_domains, spf_domains };
        let key = keys::dmarc_counts(self.account, self.domain, self.day(), network, day.reporter.key);
        Self::add_counts(tables, day.row, &key, &more)?;
        self.note_source(tables, network)
    }

    /// Stores that a network was seen on this day.
    fn note_source(&self, tables: &mut Tables<'_>, network: SourceNetwork) -> Result<(), StoreError> {
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

    /// Adds counts to the row at `key`.
    fn add_counts(
        tables: &mut Tables<'_>,
        day: &mut DmarcDayRow,
        key: &[u8],
        more: &DmarcCountsRow,
    ) -> Result<(), StoreError> {
        let mut row = match sound_or_none::<DmarcCountsRow>(tables.row(key))? {
            Some(row) => row,
            None => {
                day.rows += 1;
                DmarcCountsRow::default()
            }
        };
        row.counts.merge(&more.counts);
        row.has_own_signature |= more.has_own_signature;
        add_signers(&mut row.dkim_domains, &more.dkim_domains);
        add_signers(&mut row.spf_domains, &more.spf_domains);
        tables.put(key, &row);
        Ok(())
    }

    /// Returns the network under which a source is counted on this day.
    fn place(
        &self,
        tables: &mut Tables<'_>,
        day: &mut Day<'_>,
        source: &SourceCounts,
    ) -> Result<SourceNetwork, StoreError> {
        let (one, other, reporter) = (source.network, SourceNetwork::Other, day.reporter);
        if one == other || self.is_counted(tables, one, Some(reporter.key))? {
            return Ok(one);
        }
        let is_own = self.is_own(tables, one)?;
        // The networks of an ignored reporter are not shown, so they use none of the day's rows.
        if !is_own && (day.row.rows >= ROWS_MAX || reporter.is_ignored) {
            return Ok(other);
        }
        let is_known = self.is_counted(tables, one, None)?;
        if !is_known && day.row.networks < NETWORKS_MAX {
            day.row.networks += 1;
        } else if !is_known {
            let full = match &mut day.full {
                Some(full) => full,
                None => day.full.insert(FullDay::read(tables, self)?),
            };
            if !self.make_room(tables, (&mut *day.row, full), (!is_own).then_some(reporter.key))? {
                return Ok(other);
            }
        }
        if let Some(full) = &mut day.full {
            full.add(reporter.key);
        }
        Ok(one)
    }

    /// Returns whether a network has counts of its own on this day, from one reporter or from any.
    fn is_counted(
        &self,
        tables: &Tables<'_>,
        network: SourceNetwork,
        reporter: Option<ReporterKey>,
    ) -> Result<bool, StoreError> {
        let mut prefix = keys::dmarc_counts_of(self.account, self.domain, self.day(), network);
        prefix.extend(reporter.iter().flatten());
        let mut is_counted = false;
        tables.scan_sound(Table::DmarcCounts, &prefix, &after_prefix(&prefix), Order::Ascending, &mut |_, bytes| {
            is_counted = sound(DmarcCountsRow::decode(bytes))?.is_some_and(|row| !row.is_empty());
            Ok(if is_counted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok(is_counted)
    }

    /// Returns whether a network belongs to this service, or the account has marked it as its own.
    fn is_own(&self, tables: &Tables<'_>, network: SourceNetwork) -> Result<bool, StoreError> {
        let key = keys::dmarc_source(self.account, self.domain, network);
        let is_marked = |row: DmarcSourceRow| row.is_mine == Some(true);
        Ok(self.own.contains(&network) || sound_or_none(tables.row(&key))?.is_some_and(is_marked))
    }
}

/// The day that a report is counted on.
struct Day<'a> {
    row: &'a mut DmarcDayRow,
    reporter: CountedReporter,
    /// The day's networks, once a network needs room.
    full: Option<FullDay>,
}

/// Adds signing domains to the known ones, and keeps the most frequent.
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

/// Returns a row, or `None` if it is damaged. Its count then starts again, so that a damaged count loses no report.
fn sound_or_none<R: Row>(row: Result<Option<R>, StoreError>) -> Result<Option<R>, StoreError> {
    match row {
        Err(error) if error.is_of_row() => Ok(None),
        row => row,
    }
}

fn or_default<R: Row + Default>(row: Result<Option<R>, StoreError>) -> Result<R, StoreError> {
    sound_or_none(row).map(Option::unwrap_or_default)
}
