//! Keeping the sums of some days, so that the next start need not read all of their counts.

use serde::{Deserialize, Serialize};

use super::first_kept;
use crate::base::id::{AccountId, DomainId};
use crate::store::error::OpError;
use crate::store::op::{Infallible, Op};
use crate::store::read::Read as _;
use crate::store::row::dmarc::DmarcSumsRow;
use crate::store::schema::dmarc::dmarc_day;
use crate::store::schema::{self, Table};
use crate::store::tables::Tables;

/// Stores the sums of some days. Those of a removed domain, or of days that are swept, are dropped: nothing would
/// remove them.
#[derive(Debug, Serialize, Deserialize)]
pub struct KeepDmarcSums {
    /// The account.
    pub account: AccountId,
    /// The domain.
    pub domain: DomainId,
    /// The first day.
    pub from: u32,
    /// The sums.
    pub row: DmarcSumsRow,
}

impl Op for KeepDmarcSums {
    type Reply = ();
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<Infallible>> {
        let has_domain = tables.has(Table::Domains, &schema::domain(self.account, self.domain))?;
        if has_domain && self.from >= first_kept(tables.expiry()) {
            tables.put(&dmarc_day(self.account, self.domain, self.from), &self.row);
        }
        Ok(())
    }
}
