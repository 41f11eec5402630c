//! Removing DMARC reports after 400 days, and all those of a removed domain.

use super::{KEPT, first_kept};
use crate::base::id::{AccountId, DomainId, Ulid};
use crate::store::error::StoreError;
use crate::store::read::{Order, Read, after_prefix};
use crate::store::row::dmarc::{DmarcDayRow, DmarcReporterRow, DmarcSourceRow};
use crate::store::schema::dmarc as keys;
use crate::store::schema::{self, Table};
use crate::store::tables::Tables;

/// Removes up to `limit` rows of the account that have been kept long enough. Returns their number.
pub(in crate::store::op) fn sweep(
    tables: &mut Tables<'_>,
    account: AccountId,
    limit: usize,
) -> Result<usize, StoreError> {
    let (mut from, to) = (account.as_bytes().to_vec(), after_prefix(account.as_bytes()));
    let mut removed = 0;
    // Every report has a row of its day, so these rows name all domains.
    while removed < limit {
        let next = tables.sound_keys(Table::DmarcDays, &from, &to, Order::Ascending, 1)?;
        let Some(domain) = next.first().and_then(|key| key.get(16..)?.first_chunk().copied()) else { break };
        let domain = DomainId(Ulid(domain));
        removed += Sweep::of(tables, account, domain)?.run(tables, limit - removed)?;
        from = after_prefix(&keys::dmarc_domain(account, domain));
    }
    Ok(removed)
}

/// A sweep of one domain.
struct Sweep {
    account: AccountId,
    domain: DomainId,
    /// The first day that is kept.
    end: u32,
    /// The first report that is kept.
    end_report: Ulid,
}

impl Sweep {
    fn of(tables: &Tables<'_>, account: AccountId, domain: DomainId) -> Result<Self, StoreError> {
        let is_gone = !tables.has(Table::Domains, &schema::domain(account, domain))?;
        let end = if is_gone { u32::MAX } else { first_kept(tables.expiry()) };
        let end_report = if is_gone { Ulid([u8::MAX; 16]) } else { Ulid::new(tables.expiry() - KEPT, [0; 10]) };
        Ok(Self { account, domain, end, end_report })
    }

    /// Removes days last, because their rows lead to the others.
    fn run(&self, tables: &mut Tables<'_>, limit: usize) -> Result<usize, StoreError> {
        let mut left = limit;
        left -= self.remove_counts(tables, left)?;
        left -= self.remove_reports(tables, left)?;
        left -= self.remove_before(tables, Table::DmarcSeen, left)?.len();
        left -= self.remove_before(tables, Table::DmarcSums, left)?.len();
        let mut days = self.days(tables, left)?;
        let domain = keys::dmarc_domain(self.account, self.domain);
        let kept = keys::dmarc_day(self.account, self.domain, self.end);
        if is_any(tables, Table::DmarcReports, &domain, &domain)? && !is_any(tables, Table::DmarcDays, &kept, &domain)?
        {
            // A report outlives its day, because it arrives later. The last day stays, so that the next sweep finds the
            // report.
            days.pop();
        }
        for (key, row) in &days {
            self.forget_reporters(tables, key, row)?;
            tables.remove(Table::DmarcDays, key);
        }
        Ok(limit - left + days.len())
    }

    fn remove_before(&self, tables: &mut Tables<'_>, table: Table, limit: usize) -> Result<Vec<Vec<u8>>, StoreError> {
        let (from, to) =
            (keys::dmarc_day(self.account, self.domain, 0), keys::dmarc_day(self.account, self.domain, self.end));
        let removed = tables.sound_keys(table, &from, &to, Order::Ascending, limit)?;
        removed.iter().for_each(|key| tables.remove(table, key));
        Ok(removed)
    }

    /// Removes counts, and the sources without any counts left.
    fn remove_counts(&self, tables: &mut Tables<'_>, limit: usize) -> Result<usize, StoreError> {
        let removed = self.remove_before(tables, Table::DmarcCounts, limit)?;
        for key in &removed {
            let Some((day, network, _)) = keys::dmarc_counts_parts(key) else { continue };
            let source = keys::dmarc_source(self.account, self.domain, network);
            let Some(row) = tables.sound_row::<DmarcSourceRow>(&source)?.filter(|row| row.last_day <= day) else {
                continue;
            };
            tables.remove(Table::DmarcSources, &source);
            if row.is_mine.is_some() {
                tables.remove(Table::DmarcMarks, &source);
            }
        }
        Ok(removed.len())
    }

    fn remove_reports(&self, tables: &mut Tables<'_>, limit: usize) -> Result<usize, StoreError> {
        let prefix = keys::dmarc_domain(self.account, self.domain);
        let to = [&prefix[..], &self.end_report.0].concat();
        let removed = tables.sound_keys(Table::DmarcReports, &prefix, &to, Order::Ascending, limit)?;
        removed.iter().for_each(|key| tables.remove(Table::DmarcReports, key));
        Ok(removed.len())
    }

    fn days(&self, tables: &Tables<'_>, limit: usize) -> Result<Vec<(Vec<u8>, DmarcDayRow)>, StoreError> {
        let (from, to) =
            (keys::dmarc_day(self.account, self.domain, 0), keys::dmarc_day(self.account, self.domain, self.end));
        let found = tables.sound_keys(Table::DmarcDays, &from, &to, Order::Ascending, limit)?;
        let rows = found.into_iter().map(|key| {
            let row = tables.sound_row(&key)?.unwrap_or_default();
            Ok((key, row))
        });
        rows.collect()
    }

    /// Removes the reporters without reports of later days.
    fn forget_reporters(&self, tables: &mut Tables<'_>, key: &[u8], row: &DmarcDayRow) -> Result<(), StoreError> {
        let day = keys::dmarc_day_of(key).unwrap_or_default();
        for reporter in &row.reporters {
            let key = keys::dmarc_reporter(self.account, self.domain, reporter.reporter);
            if tables.sound_row::<DmarcReporterRow>(&key)?.is_some_and(|row| row.last_day <= day) {
                tables.remove(Table::DmarcReporters, &key);
            }
        }
        Ok(())
    }
}

/// Returns whether `table` has a row of `domain` from the key `from` on.
fn is_any(tables: &Tables<'_>, table: Table, from: &[u8], domain: &[u8]) -> Result<bool, StoreError> {
    Ok(!tables.sound_keys(table, from, &after_prefix(domain), Order::Ascending, 1)?.is_empty())
}
