//! An account's marks on its DMARC reports: its own sources, and ignored reporters.

use serde::{Deserialize, Serialize};

use super::Op;
use super::reporter::REPORTERS_READ;
use crate::base::id::{AccountId, DomainId};
use crate::domain::dmarc_source::SourceNetwork;
use crate::domain::stream::Stream;
use crate::store::error::OpError;
use crate::store::op::domain::DomainRefusal;
use crate::store::op::domain_change::check_stream;
use crate::store::read::Read as _;
use crate::store::row::dmarc::{DmarcMarkRow, DmarcReporterRow, DmarcSourceRow};
use crate::store::row::domain::DomainRow;
use crate::store::schema::dmarc as keys;
use crate::store::schema::{self, Table};
use crate::store::tables::Tables;

/// Reason why a mark is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DmarcRefusal {
    /// The domain does not exist, or no report has the source or the reporter.
    NotFound,
    /// The API key is limited to this stream, and the domain has another.
    Stream(Stream),
}

/// Marks a source as the account's own or as foreign, or removes the mark.
#[derive(Debug, Serialize, Deserialize)]
pub struct MarkDmarcSource {
    /// The account.
    pub account: AccountId,
    /// The domain.
    pub domain: DomainId,
    /// The source.
    pub network: SourceNetwork,
    /// Whether the source is the account's own; `None` removes the mark.
    pub is_mine: Option<bool>,
    /// The only stream whose domains may be changed; `None` allows any.
    pub limit: Option<Stream>,
}

impl Op for MarkDmarcSource {
    /// The domain.
    type Reply = DomainRow;
    type Refusal = DmarcRefusal;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<DomainRow, OpError<DmarcRefusal>> {
        let domain = domain_of(tables, self.account, self.domain, self.limit)?;
        let key = keys::dmarc_source(self.account, self.domain, self.network);
        let row: DmarcSourceRow = tables.row(&key)?.ok_or(OpError::Refused(DmarcRefusal::NotFound))?;
        tables.put(&key, &DmarcSourceRow { is_mine: self.is_mine, ..row });
        match self.is_mine {
            Some(is_mine) => tables.put(&key, &DmarcMarkRow { is_mine }),
            None => tables.remove(Table::DmarcMarks, &key),
        }
        Ok(domain)
    }
}

/// Excludes the reporters with a name from the counts, or includes them again.
#[derive(Debug, Serialize, Deserialize)]
pub struct IgnoreDmarcReporter {
    /// The account.
    pub account: AccountId,
    /// The domain.
    pub domain: DomainId,
    /// The reporters' name.
    pub name: String,
    /// The domain that signs the reports; `None` for any.
    pub signer: Option<String>,
    /// Whether the reporter's reports are excluded.
    pub is_ignored: bool,
    /// The only stream whose domains may be changed; `None` allows any.
    pub limit: Option<Stream>,
}

impl Op for IgnoreDmarcReporter {
    /// The domain.
    type Reply = DomainRow;
    type Refusal = DmarcRefusal;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<DomainRow, OpError<DmarcRefusal>> {
        let domain = domain_of(tables, self.account, self.domain, self.limit)?;
        let prefix = keys::dmarc_domain(self.account, self.domain);
        let all = tables.sound_rows::<DmarcReporterRow>(&prefix, REPORTERS_READ)?;
        let is_meant = |row: &DmarcReporterRow| {
            row.name == self.name && self.signer.as_ref().is_none_or(|signer| row.signer.as_ref() == Some(signer))
        };
        let meant: Vec<_> = all.into_iter().filter(|(_, row)| is_meant(row)).collect();
        if meant.is_empty() {
            return Err(OpError::Refused(DmarcRefusal::NotFound));
        }
        for (key, row) in meant {
            tables.put(&key, &DmarcReporterRow { is_ignored: self.is_ignored, ..row });
        }
        Ok(domain)
    }
}

fn domain_of(
    tables: &Tables<'_>,
    account: AccountId,
    domain: DomainId,
    limit: Option<Stream>,
) -> Result<DomainRow, OpError<DmarcRefusal>> {
    let row: Option<DomainRow> = tables.row(&schema::domain(account, domain))?;
    let row = row.ok_or(OpError::Refused(DmarcRefusal::NotFound))?;
    check_stream(limit, row.stream).map_err(|stop| match stop {
        OpError::Refused(DomainRefusal::Stream(stream)) => OpError::Refused(DmarcRefusal::Stream(stream)),
        OpError::Refused(_) => OpError::Refused(DmarcRefusal::NotFound),
        OpError::Failed(error) => OpError::Failed(error),
    })?;
    Ok(row)
}
