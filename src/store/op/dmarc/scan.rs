//! Reading the counts from a domain's reports.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::ControlFlow;

use super::reporter::REPORTERS_READ;
use crate::base::id::{AccountId, DomainId};
use crate::domain::dmarc_source::SourceNetwork;
use crate::store::error::StoreError;
use crate::store::read::{Order, Read, sound};
use crate::store::row::Row;
use crate::store::row::dmarc::{DmarcCountsRow, DmarcDayRow, DmarcReporterRow, ReporterDay};
use crate::store::schema::Table;
use crate::store::schema::dmarc::{self as keys, ReporterKey};

/// The messages of one day, network and reporter.
pub struct CountedSource {
    /// The UTC day, counted from the epoch.
    pub day: u32,
    /// The network.
    pub network: SourceNetwork,
    /// The reporter.
    pub reporter: ReporterKey,
    /// The counts.
    pub row: DmarcCountsRow,
}

/// The reporters of one day.
pub struct ReporterDays {
    /// The UTC day, counted from the epoch.
    pub day: u32,
    /// Reports.
    pub reporters: Vec<ReporterDay>,
    /// Digest of the day's row, which every report that counts changes.
    pub digest: u64,
}

/// Calls `each` with the counts of the days `from..to` of a domain, oldest first.
///
/// # Errors
/// Store errors.
pub fn scan(
    read: &impl Read,
    (account, domain): (AccountId, DomainId),
    (from, to): (u32, u32),
    each: &mut dyn FnMut(CountedSource),
) -> Result<(), StoreError> {
    let (from, to) = (keys::dmarc_day(account, domain, from), keys::dmarc_day(account, domain, to));
    read.scan_sound(Table::DmarcCounts, &from, &to, Order::Ascending, &mut |key, bytes| {
        if let Some((day, network, reporter)) = keys::dmarc_counts_parts(key)
            && let Some(row) = sound(DmarcCountsRow::decode(bytes))?
            && !row.is_empty()
        {
            each(CountedSource { day, network, reporter, row });
        }
        Ok(ControlFlow::Continue(()))
    })
}

/// Returns the reporters of each of the days `from..to` of a domain, oldest first.
///
/// # Errors
/// Store errors.
pub fn scan_days(
    read: &impl Read,
    (account, domain): (AccountId, DomainId),
    (from, to): (u32, u32),
) -> Result<Vec<ReporterDays>, StoreError> {
    let (from, to) = (keys::dmarc_day(account, domain, from), keys::dmarc_day(account, domain, to));
    let mut days = Vec::new();
    read.scan_sound(Table::DmarcDays, &from, &to, Order::Ascending, &mut |key, bytes| {
        if let Some(day) = keys::dmarc_day_of(key)
            && let Some(DmarcDayRow { reporters, .. }) = sound(DmarcDayRow::decode(bytes))?
        {
            let mut digest = DefaultHasher::new();
            bytes.hash(&mut digest);
            days.push(ReporterDays { day, reporters, digest: digest.finish() });
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(days)
}

/// Returns the reporters of a domain, with their keys. Earlier versions may have stored more than are read; these can
/// be looked up by key.
///
/// # Errors
/// Store errors.
pub fn reporters(
    read: &impl Read,
    account: AccountId,
    domain: DomainId,
) -> Result<Vec<(ReporterKey, DmarcReporterRow)>, StoreError> {
    let rows = read.sound_rows::<DmarcReporterRow>(&keys::dmarc_domain(account, domain), REPORTERS_READ)?;
    Ok(rows.into_iter().filter_map(|(key, row)| Some((*key.last_chunk()?, row))).collect())
}
