//! The reporters of a domain. A reporter is identified by the domain that signs its reports together with its name,
//! because anyone can report under any name.
//!
//! Names and domains are cheap, so their number is limited: further names of a signing domain are counted under the
//! name of that domain, and further reporters of a domain share one row. All of them can be ignored.

use super::{RecordDmarcReport, sound_or_none};
use crate::domain::hostname::DomainName;
use crate::store::error::StoreError;
use crate::store::read::Read as _;
use crate::store::row::dmarc::DmarcReporterRow;
use crate::store::schema::dmarc::{self as keys, ReporterKey};
use crate::store::tables::Tables;

/// Maximum number of names of one signing domain with counts of their own, besides the name of the domain itself.
pub(super) const NAMES_OF_SIGNER_MAX: usize = 4;
/// Maximum number of reporters of a domain with counts of their own.
pub(super) const REPORTERS_MAX: usize = 1000;
/// Maximum number of reporters that are read to count them. Earlier versions did not limit their number.
pub(super) const REPORTERS_READ: usize = 20_000;
/// Name of the row that further reporters share.
pub const SHARED_NAME: &str = "other";

/// The reporter under which a report is counted.
#[derive(Clone, Copy)]
pub(super) struct CountedReporter {
    pub(super) key: ReporterKey,
    pub(super) is_ignored: bool,
}

impl RecordDmarcReport {
    /// Stores that the reporter has reported on this day, and returns it.
    pub(super) fn note_reporter(
        &self,
        tables: &mut Tables<'_>,
        signer: &DomainName,
    ) -> Result<CountedReporter, StoreError> {
        let (key, row) = self.reporter(tables, signer)?;
        let is_ignored = row.is_ignored;
        let row = DmarcReporterRow { last_day: row.last_day.max(self.day()), ..row };
        tables.put(&keys::dmarc_reporter(self.account, self.domain, key), &row);
        Ok(CountedReporter { key, is_ignored })
    }

    fn reporter(&self, tables: &Tables<'_>, from: &DomainName) -> Result<(ReporterKey, DmarcReporterRow), StoreError> {
        let (name, signer) = (&self.report.reporter, from.registrant_domain());
        let key = keys::dmarc_signed_reporter_key(signer, name);
        if let Some(row) = self.known(tables, key)? {
            return Ok((key, row));
        }
        let prefix = keys::dmarc_domain(self.account, self.domain);
        let all = tables.sound_rows::<DmarcReporterRow>(&prefix, REPORTERS_READ)?;
        let signed: Vec<_> = all.iter().filter_map(|(_, row)| row.signer.as_deref()).collect();
        let names = all.iter().filter(|(_, row)| row.signer.as_deref() == Some(signer) && row.name != signer).count();
        let is_named = names < NAMES_OF_SIGNER_MAX || name == signer;
        let (key, name) = match is_named {
            true => (key, name.as_str()),
            false => (keys::dmarc_signed_reporter_key(signer, signer), signer),
        };
        if let Some(row) = self.known(tables, key)? {
            return Ok((key, row));
        }
        if signed.len() >= REPORTERS_MAX {
            let key = keys::dmarc_reporter_key(SHARED_NAME);
            let row = self.known(tables, key)?;
            return Ok((key, row.unwrap_or_else(|| self.new_row(SHARED_NAME, None, false))));
        }
        // Earlier versions identified the reporter by its name.
        let earlier = self.known(tables, keys::dmarc_reporter_key(name))?;
        // An earlier list of public suffixes may have given a parent domain as the signer.
        let is_of_parent = |row: &DmarcReporterRow| {
            let signer = row.signer.as_ref().and_then(|signer| signer.parse().ok());
            row.name == name && signer.is_some_and(|signer| from.is_same_or_below(&signer))
        };
        let mut earlier = earlier.iter().chain(all.iter().map(|(_, row)| row).filter(|row| is_of_parent(row)));
        let is_ignored = earlier.any(|row| row.is_ignored);
        Ok((key, self.new_row(name, Some(signer), is_ignored)))
    }

    fn known(&self, tables: &Tables<'_>, key: ReporterKey) -> Result<Option<DmarcReporterRow>, StoreError> {
        sound_or_none(tables.row(&keys::dmarc_reporter(self.account, self.domain, key)))
    }

    fn new_row(&self, name: &str, signer: Option<&str>, is_ignored: bool) -> DmarcReporterRow {
        DmarcReporterRow {
            name: name.to_owned(),
            last_day: self.day(),
            is_ignored,
            signer: signer.map(ToOwned::to_owned),
        }
    }
}
