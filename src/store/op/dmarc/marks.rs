//! An account's marks on its DMARC reports: its own sources, and the reporters to ignore.

use serde::{Deserialize, Serialize};

use super::Op;
use crate::base::id::{AccountId, DomainId};
use crate::domain::dmarc_source::SourceNetwork;
use crate::domain::stream::Stream;
use crate::store::error::Stop;
use crate::store::op::domain::DomainRefusal;
use crate::store::op::domain_change::check_stream;
use crate::store::read::Read as _;
use crate::store::row::dmarc::{DmarcReporterRow, DmarcSourceRow};
use crate::store::row::domain::DomainRow;
use crate::store::schema;
use crate::store::schema::dmarc as keys;
use crate::store::tables::Tables;

/// Why a mark is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DmarcRefusal {
    /// The domain is not there, or no report names the source or comes from the reporter.
    NotFound,
    /// The key that asks is limited to this stream, and the domain is not of it.
    Stream(Stream),
}

/// Marks a source as the account's own, as another's, or takes the mark away.
#[derive(Debug, Serialize, Deserialize)]
pub struct MarkDmarcSource {
    /// The account.
    pub account: AccountId,
    /// The domain.
    pub domain: DomainId,
    /// The source.
    pub network: SourceNetwork,
    /// Whether it is the account's own; none takes the mark away.
    pub is_mine: Option<bool>,
    /// The only stream whose domains may be changed; any where absent.
    pub limit: Option<Stream>,
}

impl Op for MarkDmarcSource {
    /// The domain.
    type Reply = DomainRow;
    type Refusal = DmarcRefusal;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<DomainRow, Stop<DmarcRefusal>> {
        let domain = domain_of(tables, self.account, self.domain, self.limit)?;
        let key = keys::dmarc_source(self.account, self.domain, self.network);
        let row: DmarcSourceRow = tables.row(&key)?.ok_or(Stop::Refused(DmarcRefusal::NotFound))?;
        tables.put(&key, &DmarcSourceRow { is_mine: self.is_mine, ..row });
        Ok(domain)
    }
}

/// Takes a reporter out of the counts, or back into them.
#[derive(Debug, Serialize, Deserialize)]
pub struct IgnoreDmarcReporter {
    /// The account.
    pub account: AccountId,
    /// The domain.
    pub domain: DomainId,
    /// The reporter's name.
    pub name: String,
    /// Whether its reports are left out.
    pub is_ignored: bool,
    /// The only stream whose domains may be changed; any where absent.
    pub limit: Option<Stream>,
}

impl Op for IgnoreDmarcReporter {
    /// The domain.
    type Reply = DomainRow;
    type Refusal = DmarcRefusal;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<DomainRow, Stop<DmarcRefusal>> {
        let domain = domain_of(tables, self.account, self.domain, self.limit)?;
        let key = keys::dmarc_reporter(self.account, self.domain, keys::dmarc_reporter_key(&self.name));
        let row: DmarcReporterRow = tables.row(&key)?.ok_or(Stop::Refused(DmarcRefusal::NotFound))?;
        tables.put(&key, &DmarcReporterRow { is_ignored: self.is_ignored, ..row });
        Ok(domain)
    }
}

fn domain_of(
    tables: &Tables<'_>,
    account: AccountId,
    domain: DomainId,
    limit: Option<Stream>,
) -> Result<DomainRow, Stop<DmarcRefusal>> {
    let row: Option<DomainRow> = tables.row(&schema::domain(account, domain))?;
    let row = row.ok_or(Stop::Refused(DmarcRefusal::NotFound))?;
    check_stream(limit, row.stream).map_err(|stop| match stop {
        Stop::Refused(DomainRefusal::Stream(stream)) => Stop::Refused(DmarcRefusal::Stream(stream)),
        Stop::Refused(_) => Stop::Refused(DmarcRefusal::NotFound),
        Stop::Failed(error) => Stop::Failed(error),
    })?;
    Ok(row)
}
